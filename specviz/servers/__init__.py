"""Engines that others run (vLLM, SGLang, llama.cpp, whatever speaks their protocol), as lanes: a request is streamed, and what the
server tells of its speculation is observed, what follows from the sizes of its messages inferred, the rest unknown. Nothing here
knows torch. A server is named by the owner, never by a visitor."""

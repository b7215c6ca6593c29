"""Lanes that stream from other engines (vLLM, SGLang, llama.cpp, any server with their protocol). Figures that the server reports of
its speculation are observed, those that follow from the sizes of its messages inferred, the rest unknown. Nothing here imports
torch. A server is named by the owner, never by a visitor."""

"""Lanes that stream from other engines (vLLM, SGLang, llama.cpp, any server with the OpenAI protocol).

Figures that the server reports are marked "observed", those derived from message sizes "inferred", all
others "unknown". Only the owner configures servers, never a visitor. Nothing here imports torch."""

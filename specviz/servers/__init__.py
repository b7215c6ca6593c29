"""Lanes that stream from other engines (vLLM, SGLang, llama.cpp, any server with the OpenAI protocol). Speculation figures that
the server reports are "observed", those derived from message sizes "inferred", the rest "unknown". Nothing here imports torch.
Only the owner names servers, never a visitor."""

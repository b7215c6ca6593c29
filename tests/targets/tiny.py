"""Tiny random checkpoints of every supported architecture, written to a folder in Hugging Face format."""

from __future__ import annotations

import torch
import transformers as tf

from specviz.models.trainable import LinearLlamaConfig

VOCAB = 48
CONTEXT = 96
WINDOW = 12
SMALL = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=CONTEXT,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
GROUPED = dict(SMALL, num_key_value_heads=2)

CONFIGS = {
    "llama": lambda: tf.LlamaConfig(**GROUPED, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "llama3": lambda: tf.LlamaConfig(
        **GROUPED,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": lambda: tf.Qwen2Config(**GROUPED, tie_word_embeddings=True),
    "qwen3": lambda: tf.Qwen3Config(**GROUPED, head_dim=16),
    "mistral": lambda: tf.MistralConfig(**GROUPED, sliding_window=WINDOW),
    "gemma3": lambda: tf.Gemma3TextConfig(
        **GROUPED,
        head_dim=8,
        sliding_window=WINDOW,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "gpt2": lambda: tf.GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_positions=CONTEXT,
        bos_token_id=None,
        eos_token_id=None,
    ),
    "opt": lambda: tf.OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        word_embed_proj_dim=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**SMALL),
    "phi3": lambda: tf.Phi3Config(**GROUPED),
}
STATE_SPACE = {
    "mamba2": lambda: tf.Mamba2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        num_heads=4,
        head_dim=16,
        state_size=8,
        n_groups=2,
        num_hidden_layers=3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    ),
    "bamba": lambda: tf.BambaConfig(
        **GROUPED, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_state=8, mamba_n_groups=2
    ),
    "falcon_h1": lambda: tf.FalconH1Config(
        **GROUPED,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=2,
        mamba_rms_norm=True,
        attention_in_multiplier=0.8,
        attention_out_multiplier=0.7,
        key_multiplier=0.6,
        ssm_in_multiplier=1.2,
        ssm_out_multiplier=0.9,
        ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
        mlp_multipliers=[0.9, 0.8],
        embedding_multiplier=1.3,
        lm_head_multiplier=0.5,
    ),
    "lfm2": lambda: tf.Lfm2Config(**GROUPED, full_attn_idxs=[1], block_multiple_of=8, conv_L_cache=3),
    "linear_llama": lambda: LinearLlamaConfig(**GROUPED, head_dim=8, group=4, conv=5),
}
FAST = ("llama", "llama3", "qwen2", "qwen3")


def network(config, seed: int = 0):
    """A network whose weights are spread wide enough that every row, position and mask shows in the
    logits."""
    torch.manual_seed(seed)
    net = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if weight.dim() > 1:
                weight.copy_(
                    torch.randn_like(weight) / weight.shape[-1] ** 0.5 * (1.5 if "embed" not in name else 3.0)
                )
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    return net


def checkpoint(folder, kind: str, **save):
    """The folder of a tiny checkpoint."""
    path = folder / kind
    if not path.exists():
        network(CONFIGS[kind]()).save_pretrained(path, **save)
    return path

"""cuDNN's attention is left out where a text grows."""

from __future__ import annotations

import torch

from specviz.models.cuda_attention import disable_cudnn_attention


def test_a_model_on_a_card_attends_without_cudnn():
    was = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        disable_cudnn_attention(torch.device("cpu"))
        assert torch.backends.cuda.cudnn_sdp_enabled()
        disable_cudnn_attention(torch.device("cuda"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)

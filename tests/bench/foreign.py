"""Our weights in others' models, to compare speed and output: Hugging Face, oneDNN."""

import torch
from torch import nn

from model.config import BOS, EOS, PAD


def to_hugging_face(bundle):
    """Pegasus is their pre-norm Transformer, Marian their post-norm one; both know sinusoids."""
    import transformers

    shape, vocab_size = bundle.model.config, bundle.model.vocab_size
    kind = "Pegasus" if shape.norm == "pre" else "Marian"
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocab_size, d_model=shape.dim, activation_function="relu", scale_embedding=True,
        encoder_layers=shape.num_encoder_layers, decoder_layers=shape.num_decoder_layers,
        encoder_ffn_dim=shape.ff_dim, decoder_ffn_dim=shape.ff_dim,
        encoder_attention_heads=shape.num_heads, decoder_attention_heads=shape.num_heads,
        max_position_embeddings=shape.max_positions, pad_token_id=PAD, bos_token_id=BOS,
        eos_token_id=EOS, forced_eos_token_id=None, decoder_start_token_id=BOS,
    )  # fmt: skip
    name = "PegasusForConditionalGeneration" if kind == "Pegasus" else "MarianMTModel"
    model = getattr(transformers, name)(config).eval()
    missing, unknown = model.load_state_dict(hugging_face_weights(bundle.model), strict=False)
    assert not unknown, unknown
    assert all(name.endswith(("final_logits_bias", "lm_head.weight")) for name in missing), missing
    model.tie_weights()
    model.generation_config.bad_words_ids = None
    return model


def hugging_face_weights(model):
    """Their names for our weights; projections apart, and with biases of 0."""
    renamed = {"model.shared.weight": model.embedding.weight}
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        renamed[f"model.{side}.embed_tokens.weight"] = model.embedding.weight
        positions = model.src_positions if side == "encoder" else model.tgt_positions
        renamed[f"model.{side}.embed_positions.weight"] = positions.table
        if model.config.norm == "pre":
            renamed |= prefixed(f"model.{side}.layer_norm.", getattr(model, f"{side}_norm"))
        for number, layer in enumerate(layers):
            for name, part in hugging_face_layer(layer):
                renamed |= prefixed(f"model.{side}.layers.{number}.{name}.", part)
    return {name: weight.detach() for name, weight in renamed.items()}


def hugging_face_layer(layer):
    norms = [each.norm for each in layer.add_norms]
    yield "self_attn_layer_norm", norms[0]
    yield from attention_parts("self_attn", layer.self_attention, ["q", "k", "v"])
    if len(norms) == 3:
        yield "encoder_attn_layer_norm", norms[1]
        yield from attention_parts("encoder_attn", layer.cross_attention, ["k", "v"])
    yield "fc1", layer.feed_forward.inner
    yield "fc2", layer.feed_forward.outer
    yield "final_layer_norm", norms[-1]


def attention_parts(name, attention, fused_names):
    if len(fused_names) == 3:
        fused = attention.query_key_value
    else:
        fused = attention.key_value
        yield f"{name}.q_proj", attention.query
    biases = linear_bias(fused).split(attention.widths)
    for part, weight, bias in zip(
        fused_names, fused.weight.split(attention.widths), biases, strict=True
    ):
        yield f"{name}.{part}_proj", {"weight": weight, "bias": bias}
    yield f"{name}.out_proj", attention.output


def linear_bias(linear):
    return torch.zeros(len(linear.weight)) if linear.bias is None else linear.bias


def prefixed(prefix, part):
    if isinstance(part, nn.Linear):
        part = {"weight": part.weight, "bias": linear_bias(part)}
    elif isinstance(part, nn.Module):
        part = part.state_dict()
    return {prefix + name: weight for name, weight in part.items()}


class PackedLinear(nn.Module):
    """A linear layer whose weights oneDNN has put in the order of its kernels.

    By operators that torch keeps for its own compiler: here to tell what they would gain.
    """

    def __init__(self, weight, bias):
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x):
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


ROWS = 256
"""Rows that the order of packed weights suits best."""


def pack(model):
    """Replace all linear layers of a model, and its projection to the vocabulary."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child.weight, child.bias))
    model.logits = PackedLinear(model.embedding.weight, None)

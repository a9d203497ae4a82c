"""Our weights in others' models, to compare speed and output: Hugging Face, CTranslate2, oneDNN."""

import torch
from torch import nn

from model.config import BOS, EOS, PAD, UNK


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


def token_names(vocab_size):
    names = [str(number) for number in range(vocab_size)]
    names[PAD], names[UNK], names[BOS], names[EOS] = "<pad>", "<unk>", "<s>", "</s>"
    return names


def to_ctranslate2(bundle, folder):
    """Write a CTranslate2 model with fp32 weights. Its tokens are our ids, as text."""
    from ctranslate2.specs import TransformerSpec

    model, shape = bundle.model, bundle.model.config
    spec = TransformerSpec.from_config(
        (shape.num_encoder_layers, shape.num_decoder_layers), shape.num_heads,
        pre_norm=shape.norm == "pre",
    )  # fmt: skip
    for side, layers in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        is_encoder = side is spec.encoder
        embeddings = side.embeddings[0] if is_encoder else side.embeddings
        embeddings.weight = array(model.embedding.weight)
        side.scale_embeddings = shape.dim**0.5
        positions = model.src_positions if is_encoder else model.tgt_positions
        side.position_encodings.encodings = array(positions.table)
        if shape.norm == "pre":
            set_norm(side.layer_norm, model.encoder_norm if is_encoder else model.decoder_norm)
        for layer_spec, layer in zip(side.layer, layers, strict=True):
            set_layer(layer_spec, layer)
    spec.decoder.projection.weight = array(model.embedding.weight)
    spec.register_source_vocabulary(token_names(model.vocab_size))
    spec.register_target_vocabulary(token_names(model.vocab_size))
    spec.config.decoder_start_token, spec.config.bos_token = "<s>", "<s>"
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def set_layer(spec, layer):
    norms = [each.norm for each in layer.add_norms]
    set_norm(spec.self_attention.layer_norm, norms[0])
    attention = layer.self_attention
    set_linears(spec.self_attention.linear, [attention.query_key_value, attention.output])
    if len(norms) == 3:
        set_norm(spec.attention.layer_norm, norms[1])
        attention = layer.cross_attention
        set_linears(spec.attention.linear, [attention.query, attention.key_value, attention.output])
    set_norm(spec.ffn.layer_norm, norms[-1])
    feed_forward = layer.feed_forward
    set_linears([spec.ffn.linear_0, spec.ffn.linear_1], [feed_forward.inner, feed_forward.outer])


def set_linears(specs, linears):
    for spec, linear in zip(specs, linears, strict=True):
        spec.weight = array(linear.weight)
        if linear.bias is not None:
            spec.bias = array(linear.bias)


def set_norm(spec, norm):
    spec.gamma, spec.beta = array(norm.weight), array(norm.bias)


def array(weight):
    return weight.detach().numpy()


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

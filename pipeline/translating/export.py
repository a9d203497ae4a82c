"""A model bundle as a CTranslate2 model: another engine's weights, with what must travel with them.

Out: `model.bin`, `config.json` and the vocabularies as CTranslate2 reads them, whose tokens are our
piece ids as text; the tokenizer's files; `export.json` (`src`, `tgt`, `max_positions`, `tokenizer`:
its digest, `quantization`).
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from model.config import BOS, EOS, PAD, UNK, ModelConfig
from model.transformer import DecoderLayer, EncoderLayer, Transformer
from pipeline.artifact import write_json
from pipeline.errors import InputError
from pipeline.pieces.tokenizer import tokenizer_files
from pipeline.translating.bundle import Bundle, load_bundle

if TYPE_CHECKING:
    from types import ModuleType

EXPORT_FILE = "export.json"

Quantization = Literal["int8", "int16", "float16", "bfloat16"]
QUANTIZATIONS: tuple[Quantization, ...] = ("int8", "int16", "float16", "bfloat16")


def export_ctranslate2(
    folder: Path, out: Path, quantization: Quantization | None = None
) -> dict[str, Any]:
    """Write a bundle's model for CTranslate2 into a new or empty folder; what it is.

    Raises:
        InputError: If CTranslate2 is not installed, has no such model, or `out` holds something.
    """
    import_ctranslate2()
    bundle = load_bundle(folder)
    _check_shape(bundle.model.config)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} must be a new or empty folder, but is not. Name another one.")
    out.mkdir(parents=True, exist_ok=True)
    write_weights(bundle.model, out, quantization)
    for name in tokenizer_files(folder):
        shutil.copyfile(folder / name, out / name)
    about = _about(bundle, quantization)
    write_json(out / EXPORT_FILE, about)  # last: without it the folder is no export
    return about


def import_ctranslate2() -> "ModuleType":
    """The package.

    Raises:
        InputError: If it is not installed.
    """
    try:
        import ctranslate2  # noqa: PLC0415 - optional, and heavy
    except ImportError:
        raise InputError(
            "This needs the package CTranslate2, which is not installed: pip install "
            "'traduko[export]'."
        ) from None
    module: ModuleType = ctranslate2
    return module


def write_weights(model: Transformer, out: Path, quantization: Quantization | None = None) -> None:
    """Write `model.bin`, `config.json` and vocabularies into a folder."""
    from ctranslate2.specs import TransformerSpec  # noqa: PLC0415

    shape = model.config
    layers = (shape.num_encoder_layers, shape.num_decoder_layers)
    spec = TransformerSpec.from_config(layers, shape.num_heads, pre_norm=shape.norm == "pre")
    _fill_encoder(spec.encoder, model)
    _fill_decoder(spec.decoder, model)
    spec.register_source_vocabulary(token_names(model.src_vocab_size or model.vocab_size))
    spec.register_target_vocabulary(token_names(model.vocab_size))
    spec.config.decoder_start_token, spec.config.bos_token = "<s>", "<s>"
    spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(out))


def token_names(vocab_size: int) -> list[str]:
    """What CTranslate2 calls each piece id."""
    names = [str(number) for number in range(vocab_size)]
    names[PAD], names[UNK], names[BOS], names[EOS] = "<pad>", "<unk>", "<s>", "</s>"
    return names


def _check_shape(shape: ModelConfig) -> None:
    widths = {shape.head_key_dim, shape.head_value_dim}
    if widths != {shape.dim / shape.num_heads}:
        raise InputError(
            f"CTranslate2 has no model whose heads are not `dim` / `num_heads` wide: `key_dim` "
            f"({shape.head_key_dim}) and `value_dim` ({shape.head_value_dim}) must be "
            f"{shape.dim / shape.num_heads:g}."
        )


def _about(bundle: Bundle, quantization: Quantization | None) -> dict[str, Any]:
    return {
        "format": "ctranslate2",
        "src": bundle.src,
        "tgt": bundle.tgt,
        "max_positions": bundle.model.config.max_positions,
        "tokenizer": bundle.tokenizer.digest,
        "quantization": quantization,
    }


def _fill_encoder(spec: Any, model: Transformer) -> None:  # noqa: ANN401 - their specs are untyped
    embedding = model.embedding if model.src_vocab_size is None else model.src_embedding
    spec.embeddings[0].weight = _array(embedding.weight)
    _fill_side(spec, model, model.src_positions, model.encoder_norm)
    for layer_spec, layer in zip(spec.layer, model.encoder, strict=True):
        assert isinstance(layer, EncoderLayer)
        _fill_layer(layer_spec, layer)


def _fill_decoder(spec: Any, model: Transformer) -> None:  # noqa: ANN401
    spec.embeddings.weight = spec.projection.weight = _array(model.embedding.weight)
    _fill_side(spec, model, model.tgt_positions, model.decoder_norm)
    for layer_spec, layer in zip(spec.layer, model.decoder, strict=True):
        assert isinstance(layer, DecoderLayer)
        attention = layer.cross_attention
        _set_norm(layer_spec.attention.layer_norm, layer.add_norms[1].norm)
        _set_linears(
            layer_spec.attention.linear, [attention.query, attention.key_value, attention.output]
        )
        _fill_layer(layer_spec, layer)


def _fill_side(spec: Any, model: Transformer, positions: nn.Module, norm: nn.Module) -> None:  # noqa: ANN401
    spec.scale_embeddings = model.config.dim**0.5
    table = positions.table
    assert isinstance(table, Tensor)
    spec.position_encodings.encodings = _array(table)
    if model.config.norm == "pre":
        _set_norm(spec.layer_norm, norm)


def _fill_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:  # noqa: ANN401
    """What layers of both sides have."""
    attention, feed_forward = layer.self_attention, layer.feed_forward
    _set_norm(spec.self_attention.layer_norm, layer.add_norms[0].norm)
    _set_linears(spec.self_attention.linear, [attention.query_key_value, attention.output])
    _set_norm(spec.ffn.layer_norm, layer.add_norms[-1].norm)
    _set_linears([spec.ffn.linear_0, spec.ffn.linear_1], [feed_forward.inner, feed_forward.outer])


def _set_linears(specs: Sequence[Any], linears: Sequence[nn.Linear]) -> None:
    for spec, linear in zip(specs, linears, strict=True):
        spec.weight = _array(linear.weight)
        if linear.bias is not None:
            spec.bias = _array(linear.bias)


def _set_norm(spec: Any, norm: Any) -> None:  # noqa: ANN401
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(weight: Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = weight.detach().float().cpu().numpy()
    return array

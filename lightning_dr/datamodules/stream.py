"""An endless stream of batches with a position, so that a run can be resumed where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, IterableDataset

from ..records import Batch


class RoundStream(IterableDataset[Batch]):
    """Batches ``start``, ``start + 1``, … of a data module, endlessly (or up to ``stop``)."""

    def __init__(self, source: RoundDataModule, start: int = 0, stop: int | None = None, split: str = "train") -> None:
        self.source, self.start, self.stop, self.split = source, start, stop, split

    def __len__(self) -> int:
        """Batches up to ``stop``."""
        if self.stop is None:
            raise TypeError("The stream of training batches has no end.")
        return self.stop - self.start

    def __iter__(self) -> Iterator[Batch]:
        """Make the batches one by one."""
        index = self.start
        while self.stop is None or index < self.stop:
            yield self.source.batch(index) if self.split == "train" else self.source.val_batch(index)
            index += 1


class RoundDataModule(LightningDataModule):
    """Rows, a seed and a batch size -> endless batches with a position.

    Batch i is a pure function of the seed and i: epoch e walks through its own permutation of the training rows, and batches run over the
    epochs one after another. A subclass sets ``train_rows`` and ``val_rows`` in ``setup`` and turns rows into a batch in ``make_batch``.

    Args:
        batch_size: Prompts per round.
        seed: Order of the rows, and which are held out.
        num_val: Rows held out for validation; they are never trained on.
    """

    def __init__(self, batch_size: int = 8, seed: int = 0, num_val: int = 0) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        if num_val < 0:
            raise ValueError(f"`num_val` must be at least 0, got {num_val}.")
        self.batch_size = batch_size
        self.seed = seed
        self.num_val = num_val
        self.position = 0
        """The next batch: those before it have been trained on."""
        self.train_rows: Sequence[Any] = ()
        self.val_rows: Sequence[Any] = ()
        self._saved_identity: dict[str, Any] | None = None

    # -- for subclasses -------------------------------------------------------------------------------------------

    def make_batch(self, index: int, rows: Sequence[Any]) -> Batch:
        """Turn the rows of a batch into the record."""
        raise NotImplementedError

    def hold_out(self, rows: Sequence[Any]) -> None:
        """Split rows into ``train_rows`` and ``val_rows``, by the seed.

        Raises:
            ValueError: If nothing is left to train on.
        """
        if len(rows) <= self.num_val:
            raise ValueError(f"`num_val` must be less than the number of usable rows, got {self.num_val} of {len(rows)}.")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).tolist()
        self.val_rows = [rows[number] for number in sorted(order[: self.num_val])]
        self.train_rows = [rows[number] for number in sorted(order[self.num_val :])]

    # -- batches --------------------------------------------------------------------------------------------------

    @property
    def num_held_out(self) -> int:
        """Prompts that validation sees."""
        return self.num_val

    @property
    def num_val_batches(self) -> int:
        """Batches of one validation."""
        return -(-len(self.val_rows) // self.batch_size)

    def batch(self, index: int) -> Batch:
        """Training batch ``index``."""
        size = len(self.train_rows)
        orders: dict[int, list[int]] = {}
        rows = []
        for at in range(index * self.batch_size, (index + 1) * self.batch_size):
            epoch = at // size
            if epoch not in orders:
                # A seed of its own for each epoch: hashing keeps neighbouring (seed, epoch) pairs apart.
                generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch + 1) % 2**63)
                orders[epoch] = torch.randperm(size, generator=generator).tolist()
            rows.append(self.train_rows[orders[epoch][at % size]])
        return self.make_batch(index, rows)

    def val_batch(self, index: int) -> Batch:
        """Validation batch ``index``; the last one may be smaller."""
        return self.make_batch(index, self.val_rows[index * self.batch_size : (index + 1) * self.batch_size])

    def train_dataloader(self) -> DataLoader[Batch]:
        """The batches from the position on.

        Raises:
            ValueError: If the position was loaded from a checkpoint of other data.
        """
        self._check_identity()
        return self._loader(RoundStream(self, self.position))

    def val_dataloader(self) -> DataLoader[Batch] | list[Any]:
        """The held-out rows once, in a fixed order."""
        if self.num_held_out == 0:
            return []
        return self._loader(RoundStream(self, 0, self.num_val_batches, "val"))

    @staticmethod
    def _loader(stream: RoundStream) -> DataLoader[Batch]:
        # A loader draws a seed for its workers; from a generator of its own, it leaves the random stream of training alone.
        return DataLoader(stream, batch_size=None, num_workers=0, generator=torch.Generator())

    # -- Lightning ------------------------------------------------------------------------------------------------

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """The position follows the batch that is trained on, not the one that is prefetched."""
        if self.trainer is not None and self.trainer.training:
            self.position = batch.index + 1
        return batch

    @property
    def is_set_up(self) -> bool:
        """Whether the rows are known."""
        return len(self.train_rows) > 0

    def identity(self) -> dict[str, Any]:
        """What must be the same for a position to mean the same batch."""
        return {"seed": self.seed, "batch_size": self.batch_size, "num_val": self.num_val, "rows": len(self.train_rows)}

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return {"position": self.position, "identity": self.identity()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position. Before ``setup``, the data are compared when the training loader is made.

        Raises:
            ValueError: If the data are other ones now; the message names what differs.
        """
        self._saved_identity = state_dict["identity"]
        if self.is_set_up:
            self._check_identity()
        self.position = state_dict["position"]

    def _check_identity(self) -> None:
        if self._saved_identity is None:
            return
        different = differences(self._saved_identity, self.identity())
        if different:
            raise ValueError(
                f"The data must be those of the checkpoint, but they differ ({'; '.join(different)}). Resume with the same data config."
            )


def differences(saved: Mapping[str, Any], own: Mapping[str, Any], where: str = "") -> list[str]:
    """What two identities disagree in, nested ones entry by entry."""
    found: list[str] = []
    for key in sorted(saved.keys() | own.keys()):
        then, now = saved.get(key), own.get(key)
        if isinstance(then, Mapping) and isinstance(now, Mapping):
            found += differences(then, now, f"{where}{key}.")
        elif then != now:
            found.append(f"{where}{key}: {then} then, {now} now")
    return found

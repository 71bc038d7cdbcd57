"""The privacy ledger: the loss of t reports, for an unchanged value (`eps_t`) and between any two value sequences
(`eps_sequence`), and the loss for an observer of reports without their senders (`shuffled_loss`)."""

from ldpstream.mechanisms.ledger.bound_unary import UnaryRounds
from ldpstream.mechanisms.ledger.losses import eps_t_grr, eps_t_unary
from ldpstream.mechanisms.ledger.sequence_grr import eps_sequence_grr
from ldpstream.mechanisms.ledger.sequence_hashed import eps_sequence_hashed
from ldpstream.mechanisms.ledger.sequence_loss import SequenceLoss
from ldpstream.mechanisms.ledger.sequence_unary import eps_sequence_unary
from ldpstream.mechanisms.ledger.shuffled import Blanket, shuffled_loss

__all__ = [
    "Blanket", "SequenceLoss", "UnaryRounds", "eps_sequence_grr", "eps_sequence_hashed", "eps_sequence_unary",
    "eps_t_grr", "eps_t_unary", "shuffled_loss",
]  # fmt: skip

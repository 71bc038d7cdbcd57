"""The privacy ledger: the losses of t reports.

The functions `eps_t_…` are for an unchanged value, the functions `eps_sequence_…` for any two value sequences. `shuffled_loss`
and `joined_loss` are for an observer of reports without their senders.
"""

from ldpstream.mechanisms.ledger.loss_distribution import LossDistribution, joined_loss
from ldpstream.mechanisms.ledger.losses import eps_t_grr, eps_t_unary
from ldpstream.mechanisms.ledger.sequence_grr import eps_sequence_grr
from ldpstream.mechanisms.ledger.sequence_loss import SequenceLoss
from ldpstream.mechanisms.ledger.sequence_unary import eps_sequence_unary
from ldpstream.mechanisms.ledger.shuffled import Blanket, shuffled_loss
from ldpstream.mechanisms.ledger.subset import eps_sequence_subset, eps_t_subset
from ldpstream.mechanisms.ledger.unary_rounds import Round

__all__ = [
    "Blanket", "LossDistribution", "Round", "SequenceLoss", "eps_sequence_grr", "eps_sequence_subset",
    "eps_sequence_unary", "eps_t_grr", "eps_t_subset", "eps_t_unary", "joined_loss", "shuffled_loss",
]  # fmt: skip

"""Update behaviours: which updates do one task together, and which of those tasks stand for others."""

from crashcheck.analyzer.behaviours.behaviour import Behaviour, Behaviours, behaviours
from crashcheck.analyzer.behaviours.groups import BehaviourGroup, groups
from crashcheck.analyzer.behaviours.represents import Signature
from crashcheck.analyzer.behaviours.sites import StaticSite

__all__ = ["Behaviour", "BehaviourGroup", "Behaviours", "Signature", "StaticSite", "behaviours", "groups"]

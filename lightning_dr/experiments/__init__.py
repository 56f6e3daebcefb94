"""What a reviewer asks for: ablations over seeds, cross-play of evaluators and policies, and the check of Eq. 45."""

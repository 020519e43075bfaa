"""What a pull request on GitHub shows of a run: annotations, a comment, a check run, a review.

`annotations.remarks` places each finding at a line of the change; `comment` writes the texts, `sections` joins those
of all jobs, and `client` sends them.

Other rooms import `annotations`, `client`, `comment`, `event`, `located`, `sections` and `verdict`.
"""

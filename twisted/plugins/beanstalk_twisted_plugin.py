"""Tells ``twistd`` that there is a ``beanstalk``.

Nothing of ours is imported here: every ``twistd --help`` runs this file, whatever it is run for.
One plugin object, and its name stays: a stale ``dropin.cache`` would hide a second or renamed one.
"""

from twisted.application.service import ServiceMaker

serviceMaker = ServiceMaker(
    "Beanstalk",
    "beanstalk_twisted.tap",
    "A durable work queue that speaks the beanstalkd protocol.",
    "beanstalk",
)

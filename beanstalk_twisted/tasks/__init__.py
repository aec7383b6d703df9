"""Tasks: functions that producers call and workers run.  `app.App` has the decorator."""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.tasks.app import App as App
    from beanstalk_twisted.tasks.app import Task as Task
    from beanstalk_twisted.tasks.app import current_attempt as current_attempt
    from beanstalk_twisted.tasks.options import Cron as Cron
    from beanstalk_twisted.tasks.results import NotDone as NotDone
    from beanstalk_twisted.tasks.results import ProcessFailed as ProcessFailed
    from beanstalk_twisted.tasks.results import Result as Result
    from beanstalk_twisted.tasks.results import ResultLost as ResultLost
    from beanstalk_twisted.tasks.results import TaskFailed as TaskFailed
    from beanstalk_twisted.tasks.running import AppWorker as AppWorker
    from beanstalk_twisted.tasks.running import UnknownTask as UnknownTask
else:
    __getattr__ = lazily(__name__, {
        "app": "App Task current_attempt",
        "options": "Cron",
        "results": "NotDone ProcessFailed Result ResultLost TaskFailed",
        "running": "AppWorker UnknownTask",
    })  # fmt: skip

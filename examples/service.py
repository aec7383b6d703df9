"""A service.  Its worker: beanstalk-work -n 4 service:app.  Jobs: python service.py ada grace."""

import sys

from beanstalk_twisted.tasks import App, Cron, current_attempt

app = App()  # The server of BEANSTALK_SERVER.


@app.task(tube="mail", retries=5, backoff="1:2:60", unique_by="{to}", unique_seconds=3600, rate=50)
def welcome(to: str) -> None:
    if to.startswith("greylisted") and current_attempt().number == 1:
        raise OSError("try again later")
    print(f"welcome {to}", flush=True)


@app.task(tube="import", group_by="{batch}", limit=60)
async def load(batch: str, row: int) -> None:
    print(f"loaded {batch} {row}", flush=True)


@app.task(tube="import", after_by="{batch}")
def loaded(batch: str) -> None:
    print(f"finished {batch}", flush=True)


@app.task(tube="reports", schedule=Cron(cron="* * * * *", zone="Europe/Berlin", missed="one"))
def report() -> None:
    print("report", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(welcome.delay(name).is_new)
    for number in range(3):
        load.delay("monday", number)
    loaded.delay("monday")

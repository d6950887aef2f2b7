"""The tasks of `celery_results.py`: results are kept by the gateway, messages in a directory."""

import os

from celery import Celery

from cases import URL

directory = os.environ["CLIENTS_QUEUE"]
app = Celery("clients", broker="filesystem://", backend=URL)
app.conf.update(
    broker_transport_options={name: directory for name in ("data_folder_in", "data_folder_out", "control_folder")},
    result_expires=100,
    broker_connection_retry_on_startup=True,
)


@app.task
def add(a, b):
    return a + b


@app.task
def text(length):
    return "x" * length


@app.task
def fail():
    raise ValueError("as it should")

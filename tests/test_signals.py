"""Stops by signals, in a process that was born with SIGINT ignored: a background job of a script."""

import os
import signal
import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from scalesearch.signals import STOP_SIGNALS, SignalInterrupt, deferred_signals, interrupt_on_signal, restored_handlers
from tests.processes import ended


@pytest.fixture(autouse=True)
def in_the_background():
    with restored_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        yield
        # as they were
        assert [signal.getsignal(number) for number in STOP_SIGNALS] == [signal.SIG_IGN] * 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_and_names_the_exit_status(number, status):
    with pytest.raises(SignalInterrupt) as stopped, interrupt_on_signal():
        os.kill(os.getpid(), number)
    assert stopped.value.status == status


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_signal_is_known_where_a_library_swallows_the_exception(number):
    with pytest.raises(SignalInterrupt) as stopped, interrupt_on_signal():
        try:
            os.kill(os.getpid(), number)
        except SignalInterrupt:
            raise KeyboardInterrupt from None
    assert stopped.value.signal_number == number


def test_a_stop_waits_for_the_check_and_a_second_ctrl_c_does_not():
    with deferred_signals() as stop:
        stop.raise_if_requested()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SignalInterrupt) as stopped:
            stop.raise_if_requested()
        assert stopped.value.signal_number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_after_sigterm_waits_too():
    with deferred_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SignalInterrupt) as stopped:
            stop.raise_if_requested()
        assert stopped.value.signal_number == signal.SIGTERM


def test_what_a_call_installs_is_undone():
    with restored_handlers():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))


def test_outside_the_main_thread_nothing_is_installed():
    def work():
        with interrupt_on_signal(), deferred_signals() as stop:
            stop.raise_if_requested()
            found.extend(signal.getsignal(number) for number in STOP_SIGNALS)

    found: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.SIG_IGN] * 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_any_command_stops_in_the_background(number, status, tmp_path):
    command = dedent("""
        import sys, time
        import click
        from scalesearch.cli import main
        @main.app.command("wait")
        def wait():
            print("waiting", flush=True)
            time.sleep(600)
        main.LazyGroup.get_command = lambda self, context, name: wait
        sys.argv = ["scalesearch", "wait"]
        main.main()
    """)
    process = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    code, _, err = ended(process)
    assert code == status and err.strip() == "Interrupted."

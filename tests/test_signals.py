"""Stops by signals in a process that ignores SIGINT, as background jobs of scripts do."""

import os
import signal
import subprocess
import sys
import threading
from textwrap import dedent

import pytest

from scalesearch.signals import (
    STOP_SIGNALS,
    SignalInterrupt,
    deferred_signals,
    interrupt_on_signal,
    restored_handlers,
)
from tests.processes import ended


@pytest.fixture(autouse=True)
def in_the_background():
    with restored_handlers():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        yield
        assert [signal.getsignal(number) for number in STOP_SIGNALS] == [signal.SIG_IGN] * 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_interrupts_with_its_exit_status(number, status):
    with pytest.raises(SignalInterrupt) as stopped, interrupt_on_signal():
        os.kill(os.getpid(), number)
    assert stopped.value.status == status


@pytest.mark.parametrize("exception", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_number_survives_another_exception(number, exception):
    with pytest.raises(SignalInterrupt) as stopped, interrupt_on_signal():
        try:
            os.kill(os.getpid(), number)
        except SignalInterrupt:
            raise exception from None
    assert stopped.value.signal_number == number


def test_deferred_signal_waits_for_the_check_unless_repeated():
    with deferred_signals() as stop:
        stop.raise_if_requested()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SignalInterrupt) as stopped:
            stop.raise_if_requested()
        assert stopped.value.signal_number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_after_sigterm_is_deferred():
    with deferred_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SignalInterrupt) as stopped:
            stop.raise_if_requested()
        assert stopped.value.signal_number == signal.SIGTERM


def test_other_exceptions_are_unchanged():
    with pytest.raises(RuntimeError), interrupt_on_signal():
        raise RuntimeError


def test_signal_in_a_destructor_ends_the_process():
    command = dedent("""
        import os, signal
        from scalesearch.signals import interrupt_on_signal
        class Interruption:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
        with interrupt_on_signal():
            Interruption()
    """)
    process = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert ended(process) == (143, "", "")


def test_restored_handlers_undo_changes():
    with restored_handlers():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))


def test_no_handlers_are_installed_outside_the_main_thread():
    def work():
        with interrupt_on_signal(), deferred_signals() as stop:
            stop.raise_if_requested()
            handlers.extend(signal.getsignal(number) for number in STOP_SIGNALS)

    handlers: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_IGN] * 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_commands_stop_in_the_background(number, status, tmp_path):
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


def test_ctrl_c_during_imports_prints_nothing():
    command = dedent("""
        import os, signal, sys
        class Interruption:
            def find_spec(self, name, *_):
                if name == "click":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interruption())
        from scalesearch.__main__ import main
        main()
    """)
    process = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert ended(process) == (130, "", "")

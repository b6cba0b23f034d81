"""URLs of storages: what may be a secret is in no message and in no file."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.cli.check import describe_problem
from scalesearch.errors import UserError
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.storage_url import mask_passwords, parse_storage_url
from tests.errors import refuses
from tests.studies.config.test_reader import REST, SPACE, problems, write

SECRET = "kt7Qz"  # what nothing shown may hold
odd = st.text("ab /:@?&=;%#.,'\\", max_size=4)
keys = st.sampled_from(["password", "PASSWORD", "sslpassword", "passwd", "pwd", "odbc_connect",
                        "token", "x"])


@settings(max_examples=300)
@given(odd, odd, keys, st.sampled_from(["postgresql", "mysql+pymysql", "mssql+pyodbc", "x"]),
       st.booleans())
def test_passwords_are_hidden(before, after, key, scheme, quoted):
    password = quote(before + SECRET + after, safe="") if quoted else before + SECRET + after
    unspaced = password.replace(" ", "").replace("'", "")  # a space ends a URL after its last @
    for url in (f"{scheme}://ann:{password}@host:5/db", f"{scheme}://host/db?{key}={unspaced}",
                f"{scheme}://:{password}@host", f"{scheme}:///?sslmode=no&{key}=PWD={SECRET}"):
        for text in (url, f"storage: {url}", f"storage: '{url}'\  # local",
                     f"`{url}` is not reachable; see (a)"):
            assert SECRET not in mask_passwords(text), text
    assert SECRET not in mask_passwords(
        f"server: no route for pgpass={SECRET} and PWD='a {SECRET}'")


@pytest.mark.parametrize("text",
                         ["{storage: mysql://ann@host/db}", "sqlite:///file.db",
                          "sqlite:////home/ann/a study/file.db", "ray://head:10001",
                          "postgresql+psycopg://ann@host:5432/db?sslmode=require",
                          "mysql://host/db.", "recipe: { max_tokens: 256 }", "nothing to hide: a@b",
                          "http://docs.x.y/a#b", "write postgresql://…"])
def test_text_without_passwords_is_unchanged(text):
    assert mask_passwords(text) == text


def test_password_with_an_unquoted_at_sign_is_rejected():
    with refuses("bad-storage-url", "%40"):
        parse_storage_url("postgresql://ann:p@ss@host/db")


@pytest.mark.parametrize("value",
                         [f"postgres://ann:{SECRET}@host/db",
                          f"postgresql://ann:a {SECRET}@host/db",
                          f"postgresql://ann:a@{SECRET}@host/db"])
def test_errors_of_a_study_file_contain_no_password(tmp_path, value):
    file = write(tmp_path, SPACE + REST)
    for arguments in ((file, [f"storage={value}"]),
                      (write(tmp_path / "..", SPACE + REST + f"storage: {value}\n"), [])):
        with pytest.raises(UserError) as error:
            read_study(*arguments)
        machines = json.dumps([describe_problem(problem) for problem in error.value.problems])
        assert SECRET not in str(error.value) + machines and "***" in str(error.value)
    assert "***" in problems(tmp_path, SPACE + REST + f"storage: {value}\n")

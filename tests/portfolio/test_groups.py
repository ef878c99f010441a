"""Groups of stocks as a table: what is understood, and what is refused in one sentence."""

import pandas as pd
import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.groups import parse_groups, read_groups

TABLE = "ticker,group,max_weight\nAAPL,tech,0.4\nMSFT,tech,\nJPM,banks,0.25\nMSFT,large,0.5\n"


def test_a_file_a_frame_and_what_is_stored_say_the_same(tmp_path):
    (tmp_path / "groups.csv").write_text("\ufeff" + TABLE)
    found = read_groups(tmp_path / "groups.csv")
    assert [(each.name, each.tickers, each.max_weight) for each in found] == [
        ("tech", ("AAPL", "MSFT"), 0.4),
        ("banks", ("JPM",), 0.25),
        ("large", ("MSFT",), 0.5),
    ]
    assert read_groups(pd.read_csv(tmp_path / "groups.csv")) == found
    assert read_groups([each.model_dump(mode="json") for each in found]) == found
    assert read_groups(None) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are the columns none"),
        ("ticker,sector\nA,x\n", "there are the columns ticker, sector; the file needs ticker, group and max_weight"),
        ("ticker,group,max_weight\n", "the file has no rows"),
        ("ticker,group,max_weight\nA,tech\n", "row 1 has 2 cells and needs 3"),
        ("ticker,group,max_weight\nA,,0.4\n", "row 1 (A): needs a ticker and a group"),
        ("ticker,group,max_weight\nA,tech,\n", "tech has no max_weight"),
        ("ticker,group,max_weight\nA,tech,40\n", "row 1 (A): '40' is no share of the account; write 0.4 for 40 %"),
        ("ticker,group,max_weight\nA,tech,0.4\nB,tech,0.5\n", "the group tech has two limits, 0.4 and 0.5"),
        ("ticker,group,max_weight\nA,tech,0.4\nA,tech,0.4\n", "row 2 (A): is in the group tech twice"),
    ],
)
def test_mistakes_are_one_sentence(text, message):
    with pytest.raises(SettingsError) as caught:
        parse_groups(text)
    assert str(caught.value).startswith("groups: ") and message in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match="groups: there is no file"):
        read_groups(tmp_path / "none.csv")
    with pytest.raises(SettingsError, match="is a folder"):
        read_groups(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is no text in UTF-8"):
        read_groups(tmp_path / "binary.csv")
    with pytest.raises(SettingsError, match="groups: must be a CSV file or a frame"):
        read_groups(5)

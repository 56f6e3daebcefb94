"""`lightning-dr evaluate policy` and `evaluate win_rate`, as a user calls them."""

import json
import math
import sys

import pytest

from lightning_dr.cli import run_evaluation
from lightning_dr.evaluate.policy import policy, respond
from lightning_dr.evaluate.questions import ifeval
from lightning_dr.evaluate.questions.base import Question
from lightning_dr.evaluate.win_rate import preference_of, read_answers, win_rate
from lightning_dr.modules.backbone import ContextError
from lightning_dr.records import Completion, Prompt
from lightning_dr.toy import ToyQuality


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Files of questions that the toy can read."""
    folder = tmp_path_factory.mktemp("questions")
    topics = ("ocean", "city", "forest")
    (folder / "alpaca.json").write_text(json.dumps([{"instruction": f"Write about {topic}.", "dataset": "toy"} for topic in topics]))
    rows = [{"question": f"Write about {topic}.", "answer": "#### 7"} for topic in topics]
    (folder / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_answers_of_a_run_and_of_its_base(short_run, questions, capsys):
    benchmarks = f"[alpaca_eval={questions / 'alpaca.json'},gsm8k={questions / 'gsm8k.jsonl'}]"
    run_evaluation(["policy", "--model", str(short_run), "--benchmarks", benchmarks, "--samples", "3", "--name", "mine"])
    folder = short_run / "evaluation" / "policy-round-00004"
    official = json.loads((folder / "alpaca_eval" / "model_outputs.json").read_text())
    assert [row["generator"] for row in official] == ["mine"] * 3
    streamed = lines(folder / "alpaca_eval.jsonl")[1:]
    assert [row["texts"][0] for row in streamed] == [row["output"] for row in official]
    assert all(len(row["texts"]) == len(row["finished"]) == 3 for row in streamed)
    assert len({text for row in streamed for text in row["texts"]}) > 3
    result = json.loads((folder / "policy.json").read_text())["benchmarks"]
    assert result["gsm8k"]["measures"]["final number is right"]["mean"] == 0.0
    assert result["gsm8k"]["measures"]["final number is right"]["size"] == 3
    assert "AVG@3" in (folder / "policy.md").read_text()
    assert "mine.jsonl" in capsys.readouterr().out
    policy(str(short_run), [f"alpaca_eval={questions / 'alpaca.json'}"], round=0)
    base = lines(short_run / "evaluation" / "policy-round-00000" / "alpaca_eval.jsonl")[1:]
    assert base[0]["texts"][0] != streamed[0]["texts"][0]
    (row,) = json.loads((short_run / "evaluation" / "policy-round-00000" / "alpaca_eval" / "model_outputs.json").read_text())[:1]
    assert row["generator"] == "version_0-round-0"


def test_sampling_can_be_changed_and_is_part_of_the_settings(questions, tmp_path):
    options = {"model": "toy.yaml", "benchmarks": [f"gsm8k={questions / 'gsm8k.jsonl'}"], "out": str(tmp_path)}
    policy(**options, samples=2, max_new_tokens=3, temperature=1e-5)
    rows = lines(tmp_path / "gsm8k.jsonl")[1:]
    assert all(tokens <= 3 for row in rows for tokens in row["tokens"])
    assert all(row["texts"][0] == row["texts"][1] for row in rows), "near greedy"
    with pytest.raises(ValueError, match="another `sampling`"):
        policy(**options, samples=2)
    with pytest.raises(ValueError, match="`samples` must be at least 1, got 0"):
        policy(**options, samples=0)


def test_a_question_beyond_the_context_is_counted_and_answered_with_nothing(questions, tmp_path):
    rows = [{"instruction": "Write about ocean. " * 400, "dataset": "long"}, {"instruction": "Write about city.", "dataset": "short"}]
    (tmp_path / "long.json").write_text(json.dumps(rows))
    policy("toy.yaml", [f"alpaca_eval={tmp_path / 'long.json'}"], out=str(tmp_path / "out"))
    found = json.loads((tmp_path / "out" / "policy.json").read_text())["benchmarks"]["alpaca_eval"]
    assert (found["questions"], found["unanswered"]) == (2, 1)
    long, short = json.loads((tmp_path / "out" / "alpaca_eval" / "model_outputs.json").read_text())
    assert long["output"] == "", "a judge that goes through questions and answers side by side finds it in its place"
    assert short["output"]


def test_only_the_context_is_forgiven():
    class Policy:
        def respond(self, prompts, num):
            if len(prompts) > 1 or prompts[0].id == "long":
                raise ContextError("too long")
            if prompts[0].id == "odd":
                raise RuntimeError("out of memory")
            return ((Completion(text="A"),),)

    module = type("Module", (), {"policy": Policy()})
    asked = [Question(id=name, prompt=Prompt(id=name, messages=()), row={}) for name in ("one", "long")]
    assert [len(group) for group in respond(module, asked, 1)] == [1, 0]
    with pytest.raises(RuntimeError, match="out of memory"):
        respond(module, [Question(id="odd", prompt=Prompt(id="odd", messages=()), row={})], 1)


class TestWinRate:
    def test_the_better_answers_win(self, tmp_path):
        one = [
            {"instruction": f"Write about {topic}.", "output": text}
            for topic, text in (("ocean", "copper calm"), ("city", "rust"), ("forest", "slow"))
        ]
        quality = ToyQuality()
        prompts = [Prompt(id="", messages=({"role": "user", "content": row["instruction"]},)) for row in one[:2]]
        words = ["honey", "copper", "rust", "calm", "salt", "slow"]
        best = [max(words, key=lambda word, prompt=prompt: quality.quality(prompt, [word]).item()) for prompt in prompts]
        worst = [min(words, key=lambda word, prompt=prompt: quality.quality(prompt, [word]).item()) for prompt in prompts]
        names = ("ocean", "city")
        for file, texts in (("good", best), ("bad", worst)):
            rows = [{"instruction": f"Write about {name}.", "output": text} for name, text in zip(names, texts, strict=True)]
            (tmp_path / f"{file}.json").write_text(json.dumps(rows + ([one[2]] if file == "good" else [])))
        good, bad = str(tmp_path / "good.json"), str(tmp_path / "bad.json")
        win_rate(good, bad, evaluator=quality, out=str(tmp_path / "out"))
        result = json.loads((tmp_path / "out" / "win_rate.json").read_text())
        assert result["measures"]["win rate"]["mean"] == result["measures"]["length-controlled win rate"]["mean"] == 1.0
        assert (result["pairs"], result["left_out"], result["ties"], result["agreement_of_orders"]) == (2, 1, 0.0, 1.0)
        win_rate(bad, good, evaluator=quality, out=str(tmp_path / "turned"))
        assert json.loads((tmp_path / "turned" / "win_rate.json").read_text())["measures"]["win rate"]["mean"] == 0.0
        win_rate(good, good, evaluator=quality, out=str(tmp_path / "same"))
        same = json.loads((tmp_path / "same" / "win_rate.json").read_text())
        assert (same["measures"]["win rate"]["mean"], same["ties"]) == (0.5, 1.0)

    def test_from_the_files_that_evaluate_policy_streams(self, short_run, questions, tmp_path):
        policy("toy.yaml", [f"alpaca_eval={questions / 'alpaca.json'}"], out=str(tmp_path / "a"))
        policy("toy.yaml", [f"alpaca_eval={questions / 'alpaca.json'}"], out=str(tmp_path / "b"), seed=1)
        files = [
            "--answers",
            str(tmp_path / "a" / "alpaca_eval.jsonl"),
            "--against",
            str(tmp_path / "b" / "alpaca_eval" / "model_outputs.json"),
        ]
        run_evaluation(["win_rate", *files, "--model", str(short_run), "--out", str(tmp_path / "out")])
        result = json.loads((tmp_path / "out" / "win_rate.json").read_text())
        assert result["pairs"] == 3
        assert all(0 <= value["mean"] <= 1 for value in result["measures"].values())
        rows = lines(tmp_path / "out" / "pairs.jsonl")[1:]
        assert all(len(row["scores"]) == 2 for row in rows), "both orders"
        assert "length-controlled win rate" in (tmp_path / "out" / "win_rate.md").read_text()

    def test_preferences(self):
        assert preference_of([[0.9, 0.1], [0.2, 0.2], [0.1, 0.3]]) == [1, 0.5, 0]
        assert math.isnan(preference_of([[None, 0.1]])[0])

    def test_forms_of_answers(self, tmp_path):
        forms = {
            "ours.jsonl": '{"settings": {}}\n{"id": "0", "messages": [{"role": "user", "content": "Q"}], "texts": ["A", "B"]}\n',
            "alpaca.json": '[{"instruction": "Q", "output": "A"}, {"instruction": "Q", "output": "again"}]',
            "ifeval.jsonl": '{"prompt": "Q", "response": "A"}\n',
        }
        for name, text in forms.items():
            (tmp_path / name).write_text(text)
            ((prompt, answer),) = read_answers(str(tmp_path / name)).values()
            assert (prompt.messages[0]["content"], answer) == ("Q", "A")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                '{"question": "Q"}\n',
                r"x\.jsonl, line 1: `response` must be text; the columns are \['question'\]. A row must have `messages`",
            ),
            ('{"instruction": "Q", "output": 3}\n', r"line 1: `output` must be text"),
            ('{"messages": [{"role": "user", "content": "Q"}], "texts": "A"}\n', r"line 1: `texts` must be a list of texts"),
            ('{"prompt": "Q", "response": "A"}\n{"prompt"', r"line 2: must be a JSON object"),
        ],
    )
    def test_bad_rows_are_named(self, tmp_path, text, message):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_answers(str(tmp_path / "x.jsonl"))

    def test_nothing_in_common_is_an_error(self, tmp_path):
        for name in "ab":
            (tmp_path / f"{name}.jsonl").write_text(f'{{"prompt": "{name}", "response": "A"}}\n')
        with pytest.raises(ValueError, match="must have prompts in common"):
            win_rate(str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), evaluator=ToyQuality())
        with pytest.raises(FileNotFoundError, match="must be files, got 'nothing'"):
            win_rate("nothing", str(tmp_path / "b.jsonl"))


def test_a_missing_checker_is_said_before_the_first_answer(monkeypatch, tmp_path):
    row = {"key": 1, "prompt": "Q", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setitem(sys.modules, "lm_eval.tasks.ifeval", None)
    ifeval.checker.cache_clear()
    with pytest.raises(SystemExit, match=r"IFEval is checked by lm-evaluation-harness, which is not here.*lightning-dr\[ifeval\]"):
        run_evaluation(
            ["policy", "--model", "toy.yaml", "--benchmarks", f"[ifeval={tmp_path / 'x.jsonl'}]", "--out", str(tmp_path / "out")]
        )
    assert not (tmp_path / "out").exists()
    ifeval.checker.cache_clear()

"""A small schema with every type of field, and strategies for random spaces in it."""

from hypothesis import strategies as st

from scalesearch.spaces import Space
from scalesearch.spaces.schema.types import ScheduleSignature, SchemaField, SchemaGroup


def cycles(arguments, depth):
    period = arguments[0]
    return None if depth % period == 0 else f"{depth} layers are not a multiple of {period}"


def runs(arguments, depth):
    n_layers = sum(arguments)
    if n_layers == depth:
        return None
    return f"it serves {n_layers} layers, and the stack has {depth}"


CALLS = {
    "own": ScheduleSignature(doc="each layer its own"),
    "one": ScheduleSignature(),
    "cycle": ScheduleSignature(1, 1, cycles, "`cycle(2)` repeats two layers"),
    "runs": ScheduleSignature(1, None, runs),
    "load": ScheduleSignature(1, None, runs),
}


def stack(depth):
    ffn = SchemaGroup(
        {"dropout": SchemaField("number", default="0.1", low=0, high=1)},
        {"relu": SchemaGroup({"hidden": SchemaField("size", default="= 4 * width")}),
         "pg": SchemaGroup({"ratio": SchemaField("size", default="2"),
                            "act": SchemaField("word", ("relu", "tanh"), default="relu")}),
         "none": SchemaGroup()}, default_variant="relu")
    return SchemaGroup({"depth": SchemaField("size", default=depth),
                        "heads": SchemaField("size", default="4"), "ffn": ffn})


SMALL = SchemaGroup(
    {
        "width": SchemaField("size"),
        "norm": SchemaField("word", ("pre", "post", "log"), default="pre"),
        "rate": SchemaField("number", default="off", low=0.0, high=1.0, special_values=("off",)),
        "light": SchemaField("flag", default="no"),
        "on": SchemaField("list", ("query", "value", "key"), default="[query]"),
        "sizes": SchemaField("list", default="[1]"),
        "label": SchemaField("text", default="plain"),
        "encoder": stack("6"),
        "decoder": stack("6"),
        "adapter": SchemaGroup({"rank": SchemaField("size", default="4")}, optional=True),
        "share": SchemaGroup(
            {
                name: SchemaGroup({"ffn": SchemaField("schedule", default="own", calls=CALLS,
                                                      depth_key=f"{name}.depth")})
                for name in ("encoder", "decoder")
            }
        ),
    }
)


def small(text, name="small.yaml"):
    return Space.parse(text, name, SMALL)


SIZES = st.sampled_from(["4", "2 | 4", "2..6 step 2", "1..4", "4..8 log", "2 | 5..7", "4 | 8 | 16"])
CONDITIONS = st.sampled_from(["width > 4", "norm == post", "light",
                              "not light and encoder.depth <= 3",
                              "rate == off or decoder.heads < 3"])
SCHEDULES = st.sampled_from(["own", "own | one", "own | cycle(1..2)", "cycle(2 | 3)",
                             "runs(1..2, 3 | 4) | own", "own | [0, 0]"])


@st.composite
def sizes(draw, computed=("= width", "= 2 * width", "= max(width, 3) // 2")):
    """The text of a size: constant, choice, range, computed or under a condition."""
    plain = draw(SIZES)
    form = draw(st.integers(0, 4))
    if form == 0:
        return draw(st.sampled_from(computed))
    if form == 1:
        return (f"{plain} if {draw(st.sampled_from(['width > 4', 'norm == post', 'light']))} else "
                f"{draw(SIZES)}")
    return f"{plain} | {draw(st.sampled_from(computed))}" if form == 2 else plain


@st.composite
def ffns(draw):
    """A feed-forward group, in one of its forms."""
    form = draw(st.integers(0, 4))
    if form == 0:
        return draw(st.sampled_from(["relu", "none | pg", "pg if light else relu | none"]))
    variants = {"relu": {"hidden": draw(sizes())},
                "pg": {"ratio": draw(SIZES),
                       "act": draw(st.sampled_from(["relu", "relu | tanh",
                                                    "tanh if light else relu"]))}, "none": {}}
    chosen = draw(st.lists(st.sampled_from(sorted(variants)), min_size=1, unique=True))
    inside = {name: variants[name] for name in chosen}
    group = dict(inside) if form == 1 and len(chosen) == 1 else {"one of": inside}
    return group | draw(st.sampled_from([{}, {"dropout": "0.1 | 0.2"},
                                         {"dropout": "0..1 step 0.25"}]))


@st.composite
def forms(draw, continuous=True):
    """A random space as nested mappings of texts."""
    rates = ["off", "off | 0.5", "0..0.4 step 0.1", "off | 0.1..0.3 step 0.1 | = 1 / width"]
    space = {"width": draw(SIZES),
             "norm": draw(st.sampled_from(["pre", "pre | post", "post | log", "= post", "log"])),
             "rate": draw(st.sampled_from(rates + ["off | 0.01..0.1 log", "0..1"] * continuous)),
             "light": draw(st.sampled_from(["yes", "no", "yes | no", "= norm == post"])),
             "encoder": {"depth": draw(sizes()),
                         "heads": draw(sizes(("= depth", "= encoder.depth + 1"))),
                         "ffn": draw(ffns())},
             "decoder": {"depth": draw(st.sampled_from(["= encoder.depth", "2..4", "6"])),
                         "ffn": draw(ffns())},
             "share": {"encoder.ffn": draw(SCHEDULES),
                       "decoder": {"ffn": "own | encoder.ffn[i] | encoder.ffn[2*i + 1]"}}}
    if draw(st.booleans()):
        space["adapter"] = draw(st.sampled_from(["none", {}, {"rank": "2 | 4"}]))
    if draw(st.booleans()):
        space["where"] = ["width >= 1", draw(CONDITIONS) + " or width >= 1", "params.total <= 10M"]
    keys = draw(st.sets(st.sampled_from(sorted(set(space) - {"width"}))))
    return {key: value for key, value in space.items() if key not in keys}

//! Expressions that are made to take much time or memory. Each input is read as the choices of a
//! generator, so that nearly all of them compile: long texts and lists, doubled, nested, searched
//! and converted in loops.
//!
//! An evaluation counts its work and its memory. This target measures both: it is a fault if little
//! work takes long, or if the process takes much more memory than the values of one evaluation may
//! have.

use super::{Target, hash_outcome};
use crate::memory::peak_memory_bytes;
use keelson_cel::{
    EXPRESSION_COST_MAX, Environment, Library, Limits, Type, VALUES_BYTES_MAX, Val, Version, adapt,
    run_briefly,
};
use keelson_meta::{Map, Value};
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::Duration;

/// The work of one case, in units of about a nanosecond.
const WORK_MAX: u64 = 40_000_000;

/// How long that work may take on a slow machine.
const TIME_MAX: Duration = Duration::from_millis(500);

/// How much longer code takes that was not optimised.
const UNOPTIMISED_FACTOR: u32 = 12;

/// Memory of the process: the values of two evaluations, and the rest.
const MEMORY_MAX: u64 = 2 * VALUES_BYTES_MAX + (256 << 20);

/// Maximum depth of generated expressions.
const DEPTH_MAX: usize = 6;

/// Number of first inputs.
const SEEDS: u64 = 200;

/// Choices of a first input.
const SEED_BYTES: usize = 48;

pub const HOSTILE: Target = Target {
    name: "hostile",
    seeds: || {
        let seed = |number| {
            let mut random = crate::mutate::Random::new(number);
            (0..SEED_BYTES).map(|_| random.below(256) as u8).collect()
        };
        (0..SEEDS).map(seed).collect()
    },
    dictionary: &[],
    attempt: |input| attempt(&Generator { choices: input, at: 0 }.condition(0)),
};

fn attempt(text: &str) -> Result<u64, String> {
    let started = cpu_time();
    let outcome = evaluate(text);
    let took = cpu_time().saturating_sub(started);
    let factor = if cfg!(debug_assertions) { UNOPTIMISED_FACTOR } else { 1 };
    if took > TIME_MAX * factor {
        return Err(format!("{took:?} for {outcome}: {text}"));
    }
    match peak_memory_bytes() {
        Some(bytes) if bytes > MEMORY_MAX => Err(format!("{bytes} bytes of memory: {text}")),
        _ => Ok(hash_outcome(&outcome)),
    }
}

fn evaluate(text: &str) -> String {
    let object = object();
    let compiled = match environment().compile(text) {
        Ok(compiled) => compiled,
        Err(error) => return error.to_string(),
    };
    let variables: Vec<Option<Val<'_>>> = NAMES
        .iter()
        .map(|name| object.get(name).and_then(|value| adapt(value, None).ok()))
        .collect();
    let limits = Limits { cost_max: EXPRESSION_COST_MAX };
    let ended = run_briefly(WORK_MAX, || {
        let outcome = compiled.program.evaluate(&variables, &limits);
        outcome.result.map_or_else(|error| error.to_string(), |val| val.ty().to_string())
    });
    ended.unwrap_or_else(|| "too much work".to_owned())
}

/// Returns the time that this thread has run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The variables.
const NAMES: [&str; 5] = ["ascii", "wide", "numbers", "words", "table"];

fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let env = Environment::kubernetes(Version::STORED_EXPRESSIONS)
            .with_library(Library::Math)
            .with_library(Library::Bindings)
            .lenient();
        NAMES.iter().fold(env, |env, name| env.with_variable(*name, Type::Dyn))
    })
}

fn object() -> &'static Map {
    static OBJECT: OnceLock<Map> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let mut map = Map::new();
        map.insert("ascii", "ab-c/d&e=f,".repeat(10_000));
        map.insert("wide", "aé日𝄞,".repeat(10_000));
        map.insert("numbers", Value::Array((0..5_000).map(Value::Int).collect()));
        let words = (0..2_000).map(|at| Value::from(format!("word{}", at % 1500)));
        map.insert("words", Value::Array(words.collect()));
        let mut table = Map::new();
        for at in 0..1_000 {
            table.insert(format!("key{at}"), format!("value{at}"));
        }
        map.insert("table", table);
        map
    })
}

/// Makes an expression from bytes; each is a choice. At the end of the bytes all choices are the
/// first.
struct Generator<'i> {
    choices: &'i [u8],
    at: usize,
}

const PATTERNS: [&str; 10] = [
    "a",
    "[ab]*a[ab]{400}",
    r"\\pL{300}",
    r"(\\pL{100}){3}",
    "(a*)*b",
    "^(a|b|ab)*c",
    r"\\b",
    "",
    "(.*),(.*),(.*)x",
    "[^,]+,",
];

impl Generator<'_> {
    fn choose(&mut self, count: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(choice) % count
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.choose(texts.len())]
    }

    fn pattern(&mut self) -> String {
        format!("'{}'", self.pick(&PATTERNS))
    }

    fn number(&mut self) -> &'static str {
        self.pick(&["0", "1", "7", "1000", "49990", "100000", "-1", "9223372036854775807"])
    }

    /// A boolean.
    fn condition(&mut self, depth: usize) -> String {
        if depth >= DEPTH_MAX {
            return self.pick(&["true", "false", "ascii == wide", "1 in numbers"]).to_owned();
        }
        let deeper = depth + 1;
        match self.choose(14) {
            0 => format!("{}.all(i, {})", self.list(deeper), self.condition(deeper)),
            1 => format!("{}.exists(j, {})", self.list(deeper), self.condition(deeper)),
            2 => format!("{} == {}", self.text(deeper), self.text(deeper)),
            3 => format!("{} == {}", self.list(deeper), self.list(deeper)),
            4 => format!("{}.matches({})", self.text(deeper), self.pattern()),
            5 => format!("{}.contains({})", self.text(deeper), self.text(deeper)),
            6 => format!("sets.contains({}, {})", self.list(deeper), self.list(deeper)),
            7 => format!("{}.isSorted()", self.list(deeper)),
            8 => format!("{} || {}", self.condition(deeper), self.condition(deeper)),
            9 => {
                format!("{}.indexOf({}) > {}", self.text(deeper), self.text(deeper), self.number())
            }
            10 => format!("{} in {}", self.text(deeper), self.list(deeper)),
            11 => format!("{}.size() > {}", self.text(deeper), self.number()),
            12 => format!("{}.size() > {}", self.list(deeper), self.number()),
            _ => format!("{} < {}", self.text(deeper), self.text(deeper)),
        }
    }

    /// A text, without a type, so that it fits everywhere.
    fn text(&mut self, depth: usize) -> String {
        format!("dyn({})", self.typed_text(depth))
    }

    /// A list, without a type.
    fn list(&mut self, depth: usize) -> String {
        format!("dyn({})", self.typed_list(depth))
    }

    fn typed_text(&mut self, depth: usize) -> String {
        if depth >= DEPTH_MAX {
            return self.pick(&["ascii", "wide", "'a'", "'é'", "words[3]", "dyn('')"]).to_owned();
        }
        let deeper = depth + 1;
        let one = |made: String, call: &str| format!("{made}{call}");
        match self.choose(22) {
            0 | 1 => self.pick(&["ascii", "wide", "words[3]", "table.key7"]).to_owned(),
            2 => format!("(dyn({}) + dyn({}))", self.text(deeper), self.text(deeper)),
            3 => {
                let old = self.text(deeper);
                let new = self.text(deeper);
                format!("{}.replace({old}, {new})", self.text(deeper))
            }
            4 => format!("{}.join({})", self.list(deeper), self.text(deeper)),
            5 => format!("'%s%s'.format([{}, {}])", self.text(deeper), self.list(deeper)),
            6 => format!("'%s'.format([[{}, {}]])", self.list(deeper), self.text(deeper)),
            7 => one(self.text(deeper), ".lowerAscii()"),
            8 => one(self.text(deeper), ".trim()"),
            9 => format!("{}.substring({})", self.text(deeper), self.number()),
            10 => format!("{}.charAt({})", self.text(deeper), self.number()),
            11 => format!("string(bytes({}))", self.text(deeper)),
            12 => format!("{}.find({})", self.text(deeper), self.pattern()),
            13 => format!("url('https://a/?' + {}).getEscapedPath()", self.text(deeper)),
            14 => format!("{}.join()", self.list(deeper)),
            15 => {
                let doubled = ".map(s, s + s)".repeat(self.choose(40));
                format!("[dyn({})]{doubled}[0]", self.text(deeper))
            }
            16 => format!("cel.bind(v, {}, v + v)", self.text(deeper)),
            17 => format!("string({}.size())", self.list(deeper)),
            18 => format!("({} ? {} : wide)", self.condition(deeper), self.text(deeper)),
            19 => format!("'%s'.format([{{{}: {}}}])", self.text(deeper), self.list(deeper)),
            20 => format!("optional.of({}).orValue('')", self.text(deeper)),
            _ => format!("strings.quote({})", self.text(deeper)),
        }
    }

    fn typed_list(&mut self, depth: usize) -> String {
        if depth >= DEPTH_MAX {
            return self.pick(&["numbers", "words", "[1]", "[[1], ['a']]"]).to_owned();
        }
        let deeper = depth + 1;
        match self.choose(22) {
            0 | 1 => self.pick(&["numbers", "words", "table.map(k, k)"]).to_owned(),
            2 => {
                format!("{}.split({})", self.text(deeper), self.pick(&["''", "','", "'a'", "'xx'"]))
            }
            3 => format!("({} + {})", self.list(deeper), self.list(deeper)),
            4 => format!("[{}, {}]", self.text(deeper), self.list(deeper)),
            5 => format!("{}.map(i, {})", self.list(deeper), self.text(deeper)),
            6 => format!("{}.map(i, {})", self.list(deeper), self.list(deeper)),
            7 => format!("{}.filter(i, {})", self.list(deeper), self.condition(deeper)),
            8 => format!("lists.range({})", self.pick(&["10", "1000", "50000", "1000000"])),
            9 => format!("{}.reverse()", self.list(deeper)),
            10 => format!("[{}, {}].flatten()", self.list(deeper), self.list(deeper)),
            11 => format!("{}.sort()", self.list(deeper)),
            12 => format!("{}.distinct()", self.list(deeper)),
            13 => format!("{}.findAll({})", self.text(deeper), self.pattern()),
            14 => format!("{}.sortBy(i, {})", self.list(deeper), self.text(deeper)),
            15 => {
                let doubled = ".map(s, s + s)".repeat(self.choose(40));
                format!("[{}]{doubled}[0]", self.list(deeper))
            }
            16 => format!("{}.transformMap(i, v, v).map(k, k)", self.list(deeper)),
            17 => format!("{}.transformList(i, v, {})", self.list(deeper), self.text(deeper)),
            18 => format!("url('https://a/?' + {}).getQuery().map(k, k)", self.text(deeper)),
            19 => format!("{}.slice(0, {})", self.list(deeper), self.number()),
            20 => format!("[{}]{}", self.list(deeper), ".map(s, [s])".repeat(self.choose(20))),
            _ => format!("{}.map(i, 1)", self.list(deeper)),
        }
    }
}

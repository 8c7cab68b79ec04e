//! Functions of templates on numbers, as those of sprig: a text counts as the number in it, and
//! what is no number as 0.

use super::arguments::{Arguments, Table, float_of, int_of};
use keelson_meta::{Str, Value, random_names};

/// Items of a list of numbers.
const ITEMS_MAX: i64 = 10_000;

pub const TABLE: Table = &[
    ("int", |given| Ok(Value::Int(given.int(0)?))),
    ("int64", |given| Ok(Value::Int(given.int(0)?))),
    ("atoi", |given| Ok(Value::Int(given.int(0)?))),
    ("float64", |given| Ok(Value::Float(float_of(given.at(0)?)))),
    ("add", |given| fold(given, i64::checked_add)),
    ("add1", |given| checked(given.int(0)?.checked_add(1))),
    ("sub", |given| checked(given.int(0)?.checked_sub(given.int(1)?))),
    ("mul", |given| fold(given, i64::checked_mul)),
    ("div", |given| checked(given.int(0)?.checked_div(given.int(1)?))),
    ("mod", |given| checked(given.int(0)?.checked_rem(given.int(1)?))),
    ("max", |given| fold(given, |left, right| Some(left.max(right)))),
    ("min", |given| fold(given, |left, right| Some(left.min(right)))),
    ("floor", |given| finite(float_of(given.at(0)?).floor())),
    ("ceil", |given| finite(float_of(given.at(0)?).ceil())),
    ("round", |given| {
        let places = i32::try_from(given.count(1, 15)?).unwrap_or(0);
        let scale = 10_f64.powi(places);
        finite((float_of(given.at(0)?) * scale).round() / scale)
    }),
    ("until", |given| steps(0, given.int(0)?, 1)),
    ("untilStep", |given| steps(given.int(0)?, given.int(1)?, given.int(2)?)),
    ("randInt", |given| {
        let from = given.int(0)?;
        let to = given.int(1)?;
        let span = u64::try_from(to.checked_sub(from).unwrap_or(0)).unwrap_or(0);
        let number = random(given).checked_rem(span).ok_or("the range is empty")?;
        checked(i64::try_from(number).ok().and_then(|number| from.checked_add(number)))
    }),
    ("randAlphaNum", |given| {
        letters(given, b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    }),
    ("randAlpha", |given| letters(given, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")),
    ("randNumeric", |given| letters(given, b"0123456789")),
    ("uuidv4", |given| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random(given).to_be_bytes());
        bytes[8..].copy_from_slice(&given.facts.random[..8]);
        Ok(random_names::uuid(bytes).into())
    }),
];

fn checked(number: Option<i64>) -> Result<Value, String> {
    number.map(Value::Int).ok_or_else(|| "there is no such number".to_owned())
}

fn finite(number: f64) -> Result<Value, String> {
    if number.is_finite() { Ok(Value::Float(number)) } else { Err("it is not finite".to_owned()) }
}

fn fold(given: &Arguments<'_>, step: fn(i64, i64) -> Option<i64>) -> Result<Value, String> {
    let rest = given.all.get(1..).unwrap_or_default();
    let all = rest.iter().try_fold(given.int(0)?, |sum, value| step(sum, int_of(value)));
    checked(all)
}

fn steps(from: i64, to: i64, step: i64) -> Result<Value, String> {
    let count = to.checked_sub(from).and_then(|span| span.checked_div(step)).unwrap_or(0);
    if count > ITEMS_MAX {
        return Err(format!("it makes more than {ITEMS_MAX} numbers"));
    }
    let mut numbers = vec![];
    let mut number = from;
    while (step > 0 && number < to) || (step < 0 && number > to) {
        numbers.push(Value::Int(number));
        number = number.saturating_add(step);
    }
    Ok(Value::Array(numbers))
}

/// Returns a number that looks random. It is the same for equal calls within one rendering.
fn random(given: &Arguments<'_>) -> u64 {
    let seed: String = given.facts.random.iter().map(|byte| format!("{byte:02x}")).collect();
    crate::random::of_text(&format!("{seed}{:?}", given.all))
}

fn letters(given: &Arguments<'_>, alphabet: &[u8]) -> Result<Value, String> {
    let count = given.count(0, 1_000)?;
    let mut number = random(given);
    let letters = (0..count).map(|_| {
        number = crate::random::of_text(&number.to_string());
        let place = usize::try_from(number % alphabet.len() as u64).unwrap_or(0);
        char::from(alphabet[place])
    });
    Ok(Str::new(letters.collect::<String>()).into())
}

//! Options of custom ops, read leniently by the kernels of this project. Converters do not distinguish whole numbers,
//! other numbers and truth values, and omit zeros.

use crate::error::{Error, Result};
use crate::flex::{Map, Value};

/// A map from names to numbers, texts and lists of numbers.
pub struct Options<'a>(Map<'a>);

impl<'a> Options<'a> {
    /// Reads a map.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Map::parse(bytes).map(Options)
    }

    /// Returns the number of this name, of any type; a truth value is 0 or 1. `None` if there is none, or null.
    ///
    /// # Errors
    /// The option is not a number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.0.value(name)? {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match number(&value) {
                None => Err(invalid(format!("the option {name} is {value}, wanted a number"))),
                number => Ok(number),
            },
        }
    }

    /// Returns the number of this name, 0 if there is none.
    ///
    /// # Errors
    /// The option is not a number.
    pub fn float(&self, name: &str) -> Result<f32> {
        Ok(self.number(name)?.unwrap_or(0.0) as f32)
    }

    /// Returns the size, count or index of this name, 0 if there is none.
    ///
    /// # Errors
    /// The option is not a number, not whole, below 0 or above `i32::MAX`.
    pub fn size(&self, name: &str) -> Result<usize> {
        size(&format!("the option {name}"), self.number(name)?.unwrap_or(0.0))
    }

    /// Returns the sizes or indices of this name; empty if the option is missing.
    ///
    /// # Errors
    /// The option is not a list of numbers that are whole and not below 0.
    pub fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        let list = match self.0.value(name)? {
            None => return Ok(Vec::new()),
            Some(Value::List(list)) => list.iter().map(number).collect(),
            Some(_) => None,
        };
        let list: Vec<f64> =
            list.ok_or_else(|| invalid(format!("the option {name} is not a list of numbers")))?;
        list.into_iter().map(|v| size(&format!("an element of the option {name}"), v)).collect()
    }

    /// Returns the text of this name; `None` if there is none, or if the option is not a text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.0.optional(name).ok().flatten()
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::InvalidNode(text.into())
}

fn number(value: &Value<'_>) -> Option<f64> {
    match *value {
        Value::Int(v) => Some(v as f64),
        Value::Uint(v) => Some(v as f64),
        Value::Float(v) => Some(v),
        Value::Bool(v) => Some(v.into()),
        _ => None,
    }
}

fn size(what: &str, value: f64) -> Result<usize> {
    if value.fract() == 0.0 && (0.0..=f64::from(i32::MAX)).contains(&value) {
        return Ok(value as usize);
    }
    let high = i32::MAX;
    Err(invalid(format!("{what} is {value}, wanted a whole number from 0 to {high}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_each_other() {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("negative", -5);
        map.push("yes", true);
        map.push("third", 1.0 / 3.0);
        map.push("whole", 3.0);
        map.push("text", "bilinear");
        map.push("pair", &[7, 8]);
        map.push("floats", &[1.5, 2.0]);
        map.end_map();
        let options = Options::parse(builder.view()).unwrap();
        assert_eq!((options.size("whole").unwrap(), options.size("none").unwrap()), (3, 0));
        assert!(options.size("negative").unwrap_err().to_string().contains("negative is -5"));
        assert_eq!((options.number("yes").unwrap(), options.number("none").unwrap()), (Some(1.0), None));
        assert_eq!(options.float("third").unwrap(), 1.0 / 3.0);
        assert_eq!((options.text("text"), options.text("pair")), (Some("bilinear"), None));
        assert_eq!(options.sizes("pair").unwrap(), [7, 8]);
        assert!(options.sizes("floats").unwrap_err().to_string().contains("floats is 1.5"));
        assert!(options.number("text").unwrap_err().to_string().contains("is the text \"bilinear\", wanted"));
        assert!(options.sizes("text").is_err());
    }
}

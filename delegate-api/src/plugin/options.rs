//! The options of a plugin: keys and values, both text.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use delegraph_core::Error;

/// The options that a user passed to a plugin: `plugin:libmine.so?device=1&fast=true` sets `device` and `fast`.
///
/// A plugin reads the keys that it knows. Options that were not read are errors ([`PluginOptions::check_all_used`],
/// which `export_delegate!` calls), with the known keys in the message, so that misspelled options are detected.
#[derive(Debug, Default)]
pub struct PluginOptions {
    pairs: Vec<(String, String)>,
    /// Keys that were read.
    known: Mutex<BTreeSet<&'static str>>,
}

/// The error of an option that is unknown, passed twice, or has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(String);

impl OptionError {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        OptionError(message.into())
    }
}

/// The reason for which a plugin cannot create its delegate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// An option is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Any other reason, such as an unavailable device.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl PluginOptions {
    /// Creates options with these keys and values.
    ///
    /// # Errors
    /// If a key is empty or occurs twice.
    pub fn new<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, OptionError> {
        let pairs: Vec<(String, String)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let mut seen = BTreeSet::new();
        for (key, _) in &pairs {
            if key.is_empty() {
                return Err(OptionError("an option has no name".into()));
            }
            if !seen.insert(key) {
                return Err(OptionError(format!("option \"{key}\" is given twice")));
            }
        }
        Ok(PluginOptions { pairs, known: Mutex::default() })
    }

    /// Returns all keys and values, in the order given.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Returns the value of `key`, if it was passed.
    pub fn get(&self, key: &'static str) -> Option<&str> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.pairs().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// Returns the value of `key`, parsed.
    ///
    /// # Errors
    /// If the value cannot be parsed.
    pub fn parse<T: FromStr<Err: Display>>(&self, key: &'static str) -> Result<Option<T>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let error = |e: T::Err| OptionError(format!("option \"{key}\": \"{text}\" is not supported: {e}"));
        text.parse().map(Some).map_err(error)
    }

    /// Returns whether `key` was passed as `true` or `1`, or without a value; false if it was not passed.
    ///
    /// # Errors
    /// For values other than these, `false` and `0`.
    pub fn flag(&self, key: &'static str) -> Result<bool, OptionError> {
        let choices = [("true", true), ("false", false), ("1", true), ("0", false), ("", true)];
        Ok(self.choice(key, &choices)?.unwrap_or(false))
    }

    /// Returns the value that `choices` assigns to the text of `key`; `None` if `key` was not passed.
    ///
    /// # Errors
    /// For a text that `choices` does not contain.
    pub fn choice<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(Some(value.clone()));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).filter(|n| !n.is_empty()).collect();
        Err(OptionError(format!("option \"{key}\": \"{text}\" is none of: {}", names.join(", "))))
    }

    /// Checks that every passed option was read.
    ///
    /// # Errors
    /// Names the options that were not read, and the known ones.
    pub fn check_all_used(&self) -> Result<(), OptionError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: Vec<String> =
            self.pairs().filter(|(k, _)| !known.contains(k)).map(|(k, _)| format!("\"{k}\"")).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = known.iter().copied().collect();
        let known =
            if known.is_empty() { "it takes none".into() } else { format!("it takes: {}", known.join(", ")) };
        let (plural, are) = if unknown.len() == 1 { ("", "is") } else { ("s", "are") };
        Err(OptionError(format!("the option{plural} {} {are} not known; {known}", unknown.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_asked_for_by_name() {
        let options = PluginOptions::new([("device", "3"), ("fast", ""), ("mode", "x"), ("n", "-")]).unwrap();
        assert_eq!(options.parse::<u32>("device"), Ok(Some(3)));
        assert_eq!(options.flag("fast"), Ok(true));
        assert_eq!(options.flag("slow"), Ok(false));
        let error = options.choice("mode", &[("low", 1), ("high", 2)]).unwrap_err();
        assert_eq!(error.to_string(), "option \"mode\": \"x\" is none of: low, high");
        let error = options.parse::<u32>("n").unwrap_err();
        assert_eq!(error.to_string(), "option \"n\": \"-\" is not supported: invalid digit found in string");
        assert_eq!(options.check_all_used(), Ok(()));
    }

    #[test]
    fn unknown_options_are_refused() {
        let check = |given: &[(&str, &str)], ask: &[&'static str], want: &str| {
            let options = PluginOptions::new(given.iter().copied()).unwrap();
            ask.iter().for_each(|key| _ = options.get(key));
            assert_eq!(options.check_all_used().unwrap_err().to_string(), want);
        };
        check(&[("a", "")], &[], "the option \"a\" is not known; it takes none");
        check(
            &[("a", ""), ("c", ""), ("d", "")],
            &["b", "c"],
            "the options \"a\", \"d\" are not known; it takes: b, c",
        );
        assert!(PluginOptions::new([("a", "1"), ("a", "2")]).is_err());
        assert!(PluginOptions::new([("", "1")]).is_err());
    }
}

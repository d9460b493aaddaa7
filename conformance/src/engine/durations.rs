//! Durations as numbers in JSON.

use std::time::Duration;

/// A number of seconds.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(super::count(*time, 1e9))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
        super::duration(f64::deserialize(deserializer)?, 1e9)
    }
}

/// A number of milliseconds.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(super::milliseconds_of(*time))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
        super::duration(f64::deserialize(deserializer)?, 1e6)
    }
}

/// A number of microseconds, or `null`.
pub(crate) mod optional_microseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(super::microseconds_of).serialize(serializer)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let time = Option::<f64>::deserialize(deserializer)?;
        time.map(|time| super::duration(time, 1e3)).transpose()
    }
}

/// Serializes a duration as a number of microseconds.
pub(crate) fn serialize_microseconds<S: serde::Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(microseconds_of(*time))
}

/// Returns a duration in milliseconds.
pub(crate) fn milliseconds_of(time: Duration) -> f64 {
    count(time, 1e6)
}

/// Returns a duration in microseconds.
pub(crate) fn microseconds_of(time: Duration) -> f64 {
    count(time, 1e3)
}

/// Returns the number of units of `nanoseconds` in a duration.
fn count(time: Duration, nanoseconds: f64) -> f64 {
    time.as_nanos() as f64 / nanoseconds
}

fn duration<E: serde::de::Error>(count: f64, nanoseconds: f64) -> Result<Duration, E> {
    Duration::try_from_secs_f64(count * nanoseconds / 1e9).map_err(E::custom)
}

//! Attributes of composites, and options of custom ops, for writing in the usual format: a FlexBuffer map.
//! [`flex`](crate::flex) reads it.

/// A map from names to values, to be written as a FlexBuffer.
///
/// ```
/// use delegraph_core::Attributes;
/// use delegraph_core::flex::Map;
///
/// # fn main() -> delegraph_core::Result<()> {
/// let bytes = Attributes::new().with("epsilon", 1e-6).with("axis", -1).to_bytes();
/// let attributes = Map::parse(&bytes)?;
/// assert_eq!(attributes.get::<f64>("epsilon")?, 1e-6);
/// assert_eq!(attributes.get::<i64>("axis")?, -1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(Vec<(String, Attribute)>);

/// A value in [`Attributes`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Attribute {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
    /// Values in order, which may differ in type.
    List(Vec<Attribute>),
    /// Named values.
    Map(Attributes),
}

macro_rules! from {
    ($($ty:ty => $make:expr;)*) => {
        $(impl From<$ty> for Attribute {
            fn from(value: $ty) -> Self {
                $make(value)
            }
        })*
    };
}

from! {
    bool => Attribute::Bool;
    i32 => |v| Attribute::Int(i64::from(v));
    i64 => Attribute::Int;
    f32 => |v| Attribute::Float(f64::from(v));
    f64 => Attribute::Float;
    &str => |v: &str| Attribute::Text(v.to_owned());
    Attributes => Attribute::Map;
    Vec<i64> => |v: Vec<i64>| Attribute::List(v.into_iter().map(Attribute::Int).collect());
    Vec<f64> => |v: Vec<f64>| Attribute::List(v.into_iter().map(Attribute::Float).collect());
    Vec<Attribute> => Attribute::List;
}

impl Attributes {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Attribute>) -> Self {
        self.0.retain(|(n, _)| n != name);
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the map as a FlexBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        for (name, value) in &self.0 {
            match value {
                Attribute::Null => map.push(name, ()),
                Attribute::Bool(v) => map.push(name, *v),
                Attribute::Int(v) => map.push(name, *v),
                Attribute::Float(v) => map.push(name, *v),
                Attribute::Text(v) => map.push(name, v.as_str()),
                Attribute::Blob(v) => map.push(name, flexbuffers::Blob(v.as_slice())),
                Attribute::List(v) => write_list(&mut map.start_vector(name), v),
                Attribute::Map(v) => write_map(&mut map.start_map(name), v),
            }
        }
        map.end_map();
        builder.take_buffer()
    }
}

fn write_list(list: &mut flexbuffers::VectorBuilder<'_>, values: &[Attribute]) {
    for value in values {
        match value {
            Attribute::Null => list.push(()),
            Attribute::Bool(v) => list.push(*v),
            Attribute::Int(v) => list.push(*v),
            Attribute::Float(v) => list.push(*v),
            Attribute::Text(v) => list.push(v.as_str()),
            Attribute::Blob(v) => list.push(flexbuffers::Blob(v.as_slice())),
            Attribute::List(v) => write_list(&mut list.start_vector(), v),
            Attribute::Map(v) => write_map(&mut list.start_map(), v),
        }
    }
}

fn write_map(map: &mut flexbuffers::MapBuilder<'_>, values: &Attributes) {
    for (name, value) in &values.0 {
        match value {
            Attribute::Null => map.push(name, ()),
            Attribute::Bool(v) => map.push(name, *v),
            Attribute::Int(v) => map.push(name, *v),
            Attribute::Float(v) => map.push(name, *v),
            Attribute::Text(v) => map.push(name, v.as_str()),
            Attribute::Blob(v) => map.push(name, flexbuffers::Blob(v.as_slice())),
            Attribute::List(v) => write_list(&mut map.start_vector(name), v),
            Attribute::Map(v) => write_map(&mut map.start_map(name), v),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::{Map, Value};

    #[test]
    fn what_is_written_is_read() {
        let axes = Attributes::new().with("TENSOR_DATA", vec![1i64, 2, 700]);
        let bytes = Attributes::new()
            .with("epsilon", 0.1f64)
            .with("axis", -1)
            .with("large", i64::MIN)
            .with("on", true)
            .with("mode", "tanh")
            .with("nothing", Attribute::Null)
            .with("bytes", Attribute::Blob(vec![1, 2, 3]))
            .with("mixed", vec![Attribute::Int(1), Attribute::Text("a".into()), axes.clone().into()])
            .with("reduction_axes", axes)
            .with("axis", -2)
            .to_bytes();
        let map = Map::parse(&bytes).unwrap();
        assert_eq!(map.get::<f64>("epsilon").unwrap(), 0.1);
        assert_eq!(map.get::<i64>("axis").unwrap(), -2);
        assert_eq!(map.get::<i64>("large").unwrap(), i64::MIN);
        assert!(map.get::<bool>("on").unwrap());
        assert_eq!(map.get::<&str>("mode").unwrap(), "tanh");
        assert_eq!(map.optional::<i64>("nothing").unwrap(), None);
        assert_eq!(map.value("bytes").unwrap(), Some(Value::Blob(&[1, 2, 3])));
        let Some(Value::List(mixed)) = map.value("mixed").unwrap() else { panic!("no list") };
        assert_eq!(mixed[..2], [Value::Int(1), Value::Text("a")]);
        let Some(Value::Map(axes)) = map.value("reduction_axes").unwrap() else { panic!("no map") };
        assert_eq!(axes.get::<Vec<i64>>("TENSOR_DATA").unwrap(), [1, 2, 700]);
    }
}

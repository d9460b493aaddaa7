//! Params by name, for code that is not written in Rust and for reports.

use std::fmt;

use super::{Params, TensorType};

/// The value of a param.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ParamValue<'a> {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f32),
    /// A value of an enum of the schema: its number and its name.
    Enum(i64, &'static str),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Booleans.
    Bools(&'a [bool]),
    /// 32-bit whole numbers.
    Ints32(&'a [i32]),
    /// Whole numbers.
    Ints(&'a [i64]),
    /// Real numbers.
    Floats(&'a [f32]),
    /// Values of an enum of the schema: numbers and names.
    Enums(Vec<(i64, &'static str)>),
}

impl ParamValue<'_> {
    /// Returns a whole number, the number of an enum's value, or 0 and 1 for false and true.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            ParamValue::Bool(b) => Some(b.into()),
            ParamValue::Int(i) | ParamValue::Enum(i, _) => Some(i),
            _ => None,
        }
    }

    /// Returns a real or a whole number; `None` for other values.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            ParamValue::Float(f) => Some(f.into()),
            ParamValue::Int(i) => Some(i as f64),
            _ => None,
        }
    }

    /// Text, or the name of an enum's value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            ParamValue::Enum(_, name) => Some(name),
            ParamValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a list of whole numbers, bytes, booleans, or numbers of enum values; `None` for other values.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        Some(match self {
            ParamValue::Bytes(list) => list.iter().map(|&i| i.into()).collect(),
            ParamValue::Bools(list) => list.iter().map(|&i| i.into()).collect(),
            ParamValue::Ints32(list) => list.iter().map(|&i| i.into()).collect(),
            ParamValue::Ints(list) => list.to_vec(),
            ParamValue::Enums(list) => list.iter().map(|(i, _)| *i).collect(),
            _ => return None,
        })
    }
}

/// The value in messages. Text is quoted, and values of enums are their numbers.
impl fmt::Display for ParamValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Bool(value) => write!(f, "{value}"),
            ParamValue::Int(code) | ParamValue::Enum(code, _) => write!(f, "{code}"),
            ParamValue::Float(value) => write!(f, "{value:?}"),
            ParamValue::Text(text) => write!(f, "{text:?}"),
            ParamValue::Bools(list) => write!(f, "{list:?}"),
            ParamValue::Floats(list) => write!(f, "{list:?}"),
            // Bytes, integers, and the numbers of enum values.
            list => write!(f, "{:?}", list.to_i64s().unwrap_or_default()),
        }
    }
}

/// The representation of a param's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// `bool`.
    Bool,
    /// `i32`.
    Int32,
    /// `u32`.
    UInt32,
    /// `i64`.
    Int64,
    /// `f32`.
    Float32,
    /// `String`.
    Text,
    /// `Vec<u8>`.
    Bytes,
    /// [`TensorType`].
    Type,
    /// The enum of the schema with this name.
    Enum(&'static str),
    /// `Vec<bool>`.
    Bools,
    /// `Vec<i32>`.
    Ints32,
    /// `Vec<i64>`.
    Ints64,
    /// `Vec<f32>`.
    Floats,
    /// Values of the enum with this name.
    Enums(&'static str),
}

/// A param that an op does not have, or a value that the param does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the param {param} does not take {value}")]
pub struct InvalidParam {
    param: String,
    value: String,
}

/// A params struct, by the names of its fields.
pub(super) trait Named {
    fn get(&self, name: &str) -> Option<ParamValue<'_>>;
    /// `None` if there is no such field, or its type does not take the value.
    fn set(&mut self, name: &str, value: &ParamValue<'_>) -> Option<()>;
}

impl Params {
    /// Sets the param `name` to `value`. An enum is given by its number.
    ///
    /// # Errors
    /// There is no param of this name, or it does not take the value.
    pub fn set(&mut self, name: &str, value: &ParamValue<'_>) -> Result<(), InvalidParam> {
        let set = self.named_mut().and_then(|params| params.set(name, value));
        set.ok_or_else(|| InvalidParam { param: name.into(), value: value.to_string() })
    }

    /// Returns the param `name`; `None` if there is no such param.
    pub fn get(&self, name: &str) -> Option<ParamValue<'_>> {
        self.named().and_then(|params| params.get(name))
    }
}

/// The type of a field of a params struct, to and from [`ParamValue`].
pub(super) trait Described: Sized {
    const KIND: FieldKind;
    fn describe(&self) -> ParamValue<'_>;
    /// `None` if the type does not take the value.
    fn parse(value: &ParamValue<'_>) -> Option<Self>;
}

macro_rules! described {
    ($($ty:ty: $kind:ident, $value:ident => $described:expr, $pattern:pat => $parsed:expr;)+) => {$(
        impl Described for $ty {
            const KIND: FieldKind = FieldKind::$kind;
            fn describe(&self) -> ParamValue<'_> {
                let $value = self;
                $described
            }
            fn parse(value: &ParamValue<'_>) -> Option<Self> {
                match *value {
                    $pattern => $parsed,
                    _ => None,
                }
            }
        }
    )+};
}
described! {
    bool: Bool, v => ParamValue::Bool(*v), ParamValue::Bool(v) => Some(v);
    i32: Int32, v => ParamValue::Int((*v).into()), ParamValue::Int(v) => v.try_into().ok();
    u32: UInt32, v => ParamValue::Int((*v).into()), ParamValue::Int(v) => v.try_into().ok();
    i64: Int64, v => ParamValue::Int(*v), ParamValue::Int(v) => Some(v);
    f32: Float32, v => ParamValue::Float(*v), ParamValue::Float(v) => Some(v);
    String: Text, v => ParamValue::Text(v), ParamValue::Text(v) => Some(v.into());
    TensorType: Type, v => ParamValue::Enum(*v as i64, v.name()),
        ParamValue::Enum(v, _) | ParamValue::Int(v) => {
            TensorType::from_schema(crate::schema::TensorType(v.try_into().ok()?))
        };
    Vec<u8>: Bytes, v => ParamValue::Bytes(v), ParamValue::Bytes(v) => Some(v.into());
    Vec<bool>: Bools, v => ParamValue::Bools(v), ParamValue::Bools(v) => Some(v.into());
    Vec<i32>: Ints32, v => ParamValue::Ints32(v), ParamValue::Ints32(v) => Some(v.into());
    Vec<i64>: Ints64, v => ParamValue::Ints(v), ParamValue::Ints(v) => Some(v.into());
    Vec<f32>: Floats, v => ParamValue::Floats(v), ParamValue::Floats(v) => Some(v.into());
}

/// An enum of the schema of which a field may hold a list.
pub(super) trait EnumValue: Described + Copy {
    const NAME: &'static str;
    fn code_and_name(self) -> (i64, &'static str);
}

impl<E: EnumValue> Described for Vec<E> {
    const KIND: FieldKind = FieldKind::Enums(E::NAME);
    fn describe(&self) -> ParamValue<'_> {
        ParamValue::Enums(self.iter().map(|value| value.code_and_name()).collect())
    }
    fn parse(value: &ParamValue<'_>) -> Option<Self> {
        match value {
            ParamValue::Enums(list) => {
                list.iter().map(|(code, name)| E::parse(&ParamValue::Enum(*code, name))).collect()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;
    use crate::ops::{DEFS, definition};
    use crate::types::BuiltinOp;

    fn defaults(op: BuiltinOp) -> Params {
        definition(op).unwrap().codec.defaults().unwrap()
    }

    #[test]
    fn every_param_of_every_op_is_read_and_set_by_its_name() {
        for def in DEFS {
            let mut params = def.codec.defaults().unwrap();
            let given = params.clone();
            for field in def.codec.fields {
                let value = given.get(field.name).unwrap();
                params.set(field.name, &value).unwrap();
                params.set(field.name, &ParamValue::Enum(-1, "none")).unwrap_err();
            }
            assert_eq!(params, given, "{def:?}");
            assert_eq!(params.get("no_such_param"), None);
        }
    }

    #[test]
    fn values_are_those_of_the_schema() {
        let conv = Node::new(BuiltinOp::CONV_2D, 1, defaults(BuiltinOp::CONV_2D), [], []);
        assert_eq!(conv.param("padding"), Some(ParamValue::Enum(0, "SAME")));
        assert_eq!(conv.param("fused_activation_function").unwrap().as_str(), Some("NONE"));
        assert_eq!(conv.param("stride_w").unwrap().as_i64(), Some(0));
        let softmax = Node::new(BuiltinOp::SOFTMAX, 1, defaults(BuiltinOp::SOFTMAX), [], []);
        assert_eq!(softmax.param("beta").unwrap().as_f64(), Some(0.0));
        let squeeze = Node::new(BuiltinOp::SQUEEZE, 1, defaults(BuiltinOp::SQUEEZE), [], []);
        assert_eq!(squeeze.param("squeeze_dims").unwrap().to_i64s(), Some(vec![]));
    }

    #[test]
    fn a_value_that_the_param_does_not_take_is_an_error() {
        let mut params = defaults(BuiltinOp::CONV_2D);
        params.set("padding", &ParamValue::Int(1)).unwrap();
        assert_eq!(params.get("padding").unwrap().as_str(), Some("VALID"));
        let mut error = |name, value| params.set(name, &value).unwrap_err().to_string();
        assert_eq!(error("padding", ParamValue::Int(3)), "the param padding does not take 3");
        assert_eq!(
            error("stride_w", ParamValue::Int(1 << 40)),
            "the param stride_w does not take 1099511627776"
        );
        assert_eq!(error("stride", ParamValue::Bool(true)), "the param stride does not take true");
    }
}

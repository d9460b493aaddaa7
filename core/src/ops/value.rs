//! Params by name, for readers that are not written in Rust or that show them.

use super::{Params, TensorType, definition};
use crate::graph::Node;

/// The value of a param.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamValue<'a> {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f32),
    /// One of the format's enums: its number and its name.
    Enum(i64, &'static str),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// True and false ones.
    Bools(&'a [bool]),
    /// 32-bit whole numbers.
    Ints32(&'a [i32]),
    /// Whole numbers.
    Ints(&'a [i64]),
    /// Real numbers.
    Floats(&'a [f32]),
    /// Values of one of the format's enums: numbers and names.
    Enums(Vec<(i64, &'static str)>),
}

impl ParamValue<'_> {
    /// A whole number, a number of an enum, or 0 and 1 for false and true.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            ParamValue::Bool(b) => Some(b.into()),
            ParamValue::Int(i) | ParamValue::Enum(i, _) => Some(i),
            _ => None,
        }
    }

    /// A number.
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

    /// A list of whole numbers.
    pub fn as_i64s(&self) -> Option<Vec<i64>> {
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

impl Node {
    /// The param `name`, as the format's options table calls it; `None` where the op has none of this name.
    pub fn param(&self, name: &str) -> Option<ParamValue<'_>> {
        let codec = &definition(self.op.builtin()?)?.codec;
        (codec.get)(&self.params, name)
    }
}

/// A field of a params struct, as a [`ParamValue`].
pub(super) trait Described {
    fn describe(&self) -> ParamValue<'_>;
}

macro_rules! described {
    ($($ty:ty: $value:ident => $described:expr;)+) => {$(
        impl Described for $ty {
            fn describe(&self) -> ParamValue<'_> {
                let $value = self;
                $described
            }
        }
    )+};
}
described! {
    bool: v => ParamValue::Bool(*v);
    i32: v => ParamValue::Int((*v).into());
    u32: v => ParamValue::Int((*v).into());
    i64: v => ParamValue::Int(*v);
    f32: v => ParamValue::Float(*v);
    String: v => ParamValue::Text(v);
    TensorType: v => ParamValue::Enum(*v as i64, v.name());
    Vec<u8>: v => ParamValue::Bytes(v);
    Vec<bool>: v => ParamValue::Bools(v);
    Vec<i32>: v => ParamValue::Ints32(v);
    Vec<i64>: v => ParamValue::Ints(v);
    Vec<f32>: v => ParamValue::Floats(v);
}

/// A value of one of the format's enums.
pub(super) trait EnumValue: Copy {
    fn code_and_name(self) -> (i64, &'static str);
}

impl<E: EnumValue> Described for Vec<E> {
    fn describe(&self) -> ParamValue<'_> {
        ParamValue::Enums(self.iter().map(|value| value.code_and_name()).collect())
    }
}

/// Ops without params have none of any name.
pub(super) fn no_params<'p>(_: &'p Params, _: &str) -> Option<ParamValue<'p>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::BuiltinOp;
    use crate::ops::DEFS;

    #[test]
    fn every_param_of_every_op_has_a_value() {
        for def in DEFS {
            let node = Node::new(def.op, 1, def.codec.defaults().unwrap(), [], []);
            for field in def.codec.fields {
                assert!(node.param(field.name).is_some(), "{def:?}.{}", field.name);
            }
            assert_eq!(node.param("no_such_param"), None);
        }
    }

    #[test]
    fn values_are_those_of_the_format() {
        let defaults = |op| definition(op).unwrap().codec.defaults().unwrap();
        let conv = Node::new(BuiltinOp::CONV_2D, 1, defaults(BuiltinOp::CONV_2D), [], []);
        assert_eq!(conv.param("padding"), Some(ParamValue::Enum(0, "SAME")));
        assert_eq!(conv.param("fused_activation_function").unwrap().as_str(), Some("NONE"));
        assert_eq!(conv.param("stride_w").unwrap().as_i64(), Some(0));
        let softmax = Node::new(BuiltinOp::SOFTMAX, 1, defaults(BuiltinOp::SOFTMAX), [], []);
        assert_eq!(softmax.param("beta").unwrap().as_f64(), Some(0.0));
        let squeeze = Node::new(BuiltinOp::SQUEEZE, 1, defaults(BuiltinOp::SQUEEZE), [], []);
        assert_eq!(squeeze.param("squeeze_dims").unwrap().as_i64s(), Some(vec![]));
    }
}

//! Subgraphs that combine two elements into one, as scatter, reduce and window reductions call them.

use delegraph_core::error::counted;
use delegraph_core::graph::{Subgraph, Tensor};
use delegraph_core::kernel::{InvokeContext, Placement, PrepareContext, RuntimeTensor};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, Error, Result, Shape, TensorType};
use half::{bf16, f16};

/// A function of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    /// Returns the second element.
    Second,
    Add,
    Multiply,
    Minimum,
    Maximum,
    /// Bitwise; logical for booleans.
    And,
    /// Bitwise; logical for booleans.
    Or,
    /// 1 if neither is 0, else 0.
    All,
    /// 0 if both are 0, else 1.
    Any,
}

impl Combine {
    /// Returns the function of subgraph `index`, which applies one op to its two inputs, or returns the second of them.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the subgraph does not exist, [`Error::Unsupported`] for any other subgraph.
    pub(crate) fn by_subgraph(cx: &mut PrepareContext<'_>, index: i32) -> Result<Self> {
        let subgraph = usize::try_from(index).ok().and_then(|i| cx.host().subgraph(i));
        let subgraph =
            subgraph.ok_or_else(|| Error::InvalidNode(format!("subgraph {index} does not exist")))?;
        combination(subgraph).ok_or_else(|| {
            let ops: Vec<String> = subgraph.nodes().iter().map(|n| n.op().to_string()).collect();
            let ops = if ops.is_empty() { "no op".to_owned() } else { ops.join(", ") };
            Error::Unsupported(format!(
                "subgraph {index} combines elements by {ops}; only one ADD, MULTIPLY, MAXIMUM, MINIMUM, AND or OR is \
             supported"
            ))
        })
    }
}

fn combination(subgraph: &Subgraph) -> Option<Combine> {
    let ([first, second], [output]) = (subgraph.inputs(), subgraph.outputs()) else { return None };
    let [node] = subgraph.nodes() else {
        return (subgraph.nodes().is_empty() && output == second).then_some(Combine::Second);
    };
    let inputs = [node.input(0)?, node.input(1)?];
    let both = inputs == [*first, *second] || inputs == [*second, *first];
    let plain = match node.params() {
        Params::Add(p) => p.fused_activation_function == Activation::None,
        Params::Mul(p) => p.fused_activation_function == Activation::None,
        _ => true,
    };
    if !both || !plain || node.outputs() != [*output] {
        return None;
    }
    match node.op().builtin()? {
        BuiltinOp::ADD | BuiltinOp::STABLEHLO_ADD => Some(Combine::Add),
        BuiltinOp::MUL | BuiltinOp::STABLEHLO_MULTIPLY => Some(Combine::Multiply),
        BuiltinOp::MINIMUM | BuiltinOp::STABLEHLO_MINIMUM => Some(Combine::Minimum),
        BuiltinOp::MAXIMUM | BuiltinOp::STABLEHLO_MAXIMUM => Some(Combine::Maximum),
        BuiltinOp::LOGICAL_AND | BuiltinOp::STABLEHLO_AND => Some(Combine::And),
        BuiltinOp::LOGICAL_OR | BuiltinOp::STABLEHLO_OR => Some(Combine::Or),
        _ => None,
    }
}

/// A subgraph that is called with single elements.
pub(crate) struct Region {
    subgraph: usize,
    arguments: Vec<RuntimeTensor>,
}

impl Region {
    /// Subgraph `index`, with one argument of each of `types` and `results` results.
    pub(crate) fn new(
        cx: &mut PrepareContext<'_>,
        index: i32,
        types: &[TensorType],
        results: usize,
    ) -> Result<Self> {
        let subgraph = usize::try_from(index)
            .map_err(|_| Error::InvalidNode(format!("subgraph {index} does not exist")))?;
        let returned = cx.host().prepare_callee(subgraph, &vec![Shape::default(); types.len()])?;
        if returned.len() != results {
            let count = returned.len();
            return Err(Error::InvalidNode(format!(
                "subgraph {index} returns {}, not {results}",
                counted(count, "tensor")
            )));
        }
        let scalar = |&ty: &TensorType| {
            let mut tensor = RuntimeTensor::new(&Tensor::new("", ty, []));
            tensor.allocate(Placement::Dynamic).map(|()| tensor)
        };
        Ok(Region { subgraph, arguments: types.iter().map(scalar).collect::<Result<_>>()? })
    }

    /// Sets argument `i` to one element of its type.
    pub(crate) fn set(&mut self, i: usize, element: &[u8]) -> Result<()> {
        self.arguments[i].bytes_mut()?.copy_from_slice(element);
        Ok(())
    }

    /// Calls the subgraph. Its results must be single elements of these types.
    pub(crate) fn call<'c>(
        &self,
        cx: &'c mut InvokeContext<'_>,
        types: &[TensorType],
    ) -> Result<Vec<&'c RuntimeTensor>> {
        let arguments: Vec<&RuntimeTensor> = self.arguments.iter().collect();
        let results = cx.host().call(self.subgraph, &arguments)?;
        match results.iter().zip(types).find(|(r, ty)| r.ty != **ty || r.shape.elements() != 1) {
            None => Ok(results),
            Some((result, ty)) => Err(Error::InvalidNode(format!(
                "subgraph {} returns {} {}, expected one {ty}",
                self.subgraph, result.ty, result.shape
            ))),
        }
    }
}

/// An element type with functions of [`Combine`].
pub(crate) trait Combined: Element {
    /// Returns the function for this type; `None` if the type does not have it.
    fn combine(how: Combine) -> Option<fn(Self, Self) -> Self>;
}

macro_rules! of_numbers {
    ($how:expr, $zero:expr, $one:expr) => {
        match $how {
            Combine::Second => Some(|_, b| b),
            Combine::Minimum => Some(|a, b| if b < a { b } else { a }),
            Combine::Maximum => Some(|a, b| if a < b { b } else { a }),
            Combine::All => Some(|a, b| if a != $zero && b != $zero { $one } else { $zero }),
            Combine::Any => Some(|a, b| if a != $zero || b != $zero { $one } else { $zero }),
            _ => None,
        }
    };
}

macro_rules! integers {
    ($($ty:ty),*) => { $(impl Combined for $ty {
        fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
            match how {
                Combine::Add => Some(<$ty>::wrapping_add),
                Combine::Multiply => Some(<$ty>::wrapping_mul),
                Combine::And => Some(|a, b| a & b),
                Combine::Or => Some(|a, b| a | b),
                how => of_numbers!(how, 0, 1),
            }
        }
    })* };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($ty:ty: $zero:expr, $one:expr;)*) => { $(impl Combined for $ty {
        fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
            match how {
                Combine::Add => Some(|a, b| a + b),
                Combine::Multiply => Some(|a, b| a * b),
                how => of_numbers!(how, $zero, $one),
            }
        }
    })* };
}
floats! {
    f32: 0.0, 1.0;
    f64: 0.0, 1.0;
    f16: f16::ZERO, f16::ONE;
    bf16: bf16::ZERO, bf16::ONE;
}

impl Combined for Bool {
    fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
        Some(match how {
            Combine::Second => |_, b| b,
            Combine::Add | Combine::Maximum | Combine::Or | Combine::Any => {
                |a, b| Bool::from(a.get() || b.get())
            }
            Combine::Multiply | Combine::Minimum | Combine::And | Combine::All => {
                |a, b| Bool::from(a.get() && b.get())
            }
        })
    }
}

/// Calls the generic function `$on::<T>` for the type `$ty`, any that is [`Combined`]; `None` for other types.
macro_rules! on_combined {
    ($ty:expr, $on:ident($($argument:expr),*)) => {{
        use delegraph_core::TensorType as T;
        match $ty {
            T::Float32 => Some($on::<f32>($($argument),*)),
            T::Float64 => Some($on::<f64>($($argument),*)),
            T::Float16 => Some($on::<half::f16>($($argument),*)),
            T::BFloat16 => Some($on::<half::bf16>($($argument),*)),
            T::Int8 => Some($on::<i8>($($argument),*)),
            T::UInt8 => Some($on::<u8>($($argument),*)),
            T::Int16 => Some($on::<i16>($($argument),*)),
            T::UInt16 => Some($on::<u16>($($argument),*)),
            T::Int32 => Some($on::<i32>($($argument),*)),
            T::UInt32 => Some($on::<u32>($($argument),*)),
            T::Int64 => Some($on::<i64>($($argument),*)),
            T::UInt64 => Some($on::<u64>($($argument),*)),
            T::Bool => Some($on::<delegraph_core::types::Bool>($($argument),*)),
            _ => None,
        }
    }};
}
pub(crate) use on_combined;

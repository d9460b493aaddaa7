//! Unary functions of quantized values as tables of all results, in the arithmetic of the CPU kernels.

use delegraph_core::Result;
use delegraph_core::quantized::Steps;
use delegraph_core::quantized::lookup::Lookup;
use delegraph_core::quantized::unary::{self, Rsqrt, Sigmoid};
use delegraph_shaders::unary::Unary;

/// Returns the result of `function` for each stored value, in the order of [`entries`]; `None` if no CPU kernel
/// defines it for this type.
///
/// # Errors
/// For scales that the CPU kernels reject.
pub(crate) fn table(function: Unary, from: Steps, to: Steps) -> Result<Option<Vec<i32>>> {
    let (wide, unsigned) = (from.is_wide(), from.low == 0);
    Ok(Some(match function {
        Unary::Abs if !unsigned => entries(from, unary::abs(from, to)?),
        Unary::Clamp { min, max } if !wide || min == 0.0 && max != 1.0 => {
            entries(from, unary::clamp(from, to, min, max)?)
        }
        Unary::Elu if !unsigned && !wide => of_table(from, &unary::elu(from, to)),
        Unary::Exp if !unsigned => of_table(from, &unary::exp(from, to)?),
        Unary::Gelu => of_table(from, &unary::gelu(from, to, false)),
        Unary::GeluTanh => of_table(from, &unary::gelu(from, to, true)),
        Unary::HardSwish if !wide => entries(from, unary::hard_swish(from, to)?),
        Unary::LeakyRelu { alpha } => entries(from, unary::leaky_relu(from, to, alpha)?),
        Unary::Log if !unsigned => of_table(from, &unary::log(from, to)?),
        Unary::Logistic => {
            let sigmoid = Sigmoid::logistic(from, to)?;
            entries(from, |x| sigmoid.at(x))
        }
        Unary::Rsqrt if !unsigned => {
            let rsqrt = Rsqrt::new(from, to)?;
            entries(from, |x| rsqrt.at(x))
        }
        Unary::Sqrt if !unsigned => entries(from, unary::sqrt(from, to)?),
        Unary::Tanh => {
            let sigmoid = Sigmoid::tanh(from, to)?;
            entries(from, |x| sigmoid.at(x))
        }
        _ => return Ok(None),
    }))
}

fn of_table(from: Steps, table: &Lookup) -> Vec<i32> {
    entries(from, |x| table.at(x))
}

/// Returns a table of `f` over the integers of a type: first those from 0 up, then, for signed types, those from the
/// lowest up, so that a negative value is an index from the table's end.
pub(crate) fn entries<T>(from: Steps, f: impl Fn(i32) -> T) -> Vec<T> {
    let count = from.high - from.low + 1;
    (0..count).map(|at| f(if at > from.high { at - count } else { at })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph_core::TensorType;

    #[test]
    fn negative_values_count_from_the_end() {
        let signed = Steps::new(TensorType::Int8, 0.5, -1).unwrap();
        let unsigned = Steps::new(TensorType::UInt8, 0.25, 10).unwrap();
        let relu = table(Unary::RELU, signed, unsigned).unwrap().unwrap();
        assert_eq!((relu[0], relu[127], relu[128], relu[255]), (12, 255, 10, 10));
        let output = Steps::new(TensorType::Int8, 1.0 / 128.0, 0).unwrap();
        let tanh = table(Unary::Tanh, unsigned, output).unwrap().unwrap();
        assert_eq!((tanh[0], tanh[10], tanh[14], tanh[255]), (-126, 0, 97, 127));
        assert_eq!(table(Unary::Exp, unsigned, output).unwrap(), None);
        let wide = Steps::new(TensorType::Int16, 0.5, 0).unwrap();
        let negated = table(Unary::LeakyRelu { alpha: -1.0 }, wide, wide).unwrap().unwrap();
        assert_eq!((negated.len(), negated[7], negated[65_536 - 7]), (65_536, 7, 7));
    }
}

//! Unary functions of quantized values as tables of all results, in the arithmetic of the CPU kernels.

use delegraph_core::Result;
use delegraph_core::quantized::Steps;
use delegraph_core::quantized::lookup::Lookup;
use delegraph_core::quantized::unary::{self, Rsqrt, Sigmoid};
use delegraph_shaders::unary::Unary;

use crate::graph::Table;

/// Returns the table of `function`; `None` if no CPU kernel defines it for this type.
///
/// # Errors
/// For scales that the CPU kernels reject.
pub(crate) fn table(function: Unary, from: Steps, to: Steps) -> Result<Option<Table>> {
    let (wide, unsigned) = (from.is_wide(), from.low == 0);
    let of_table = |table: Lookup| Table::new(&function, from, to, move |x| table.at(x));
    Ok(Some(match function {
        Unary::Abs if !unsigned => Table::new(&function, from, to, unary::abs(from, to)?),
        Unary::Clamp { min, max } if !wide || min == 0.0 && max != 1.0 => {
            Table::new(&function, from, to, unary::clamp(from, to, min, max)?)
        }
        Unary::Elu if !unsigned && !wide => of_table(unary::elu(from, to)),
        Unary::Exp if !unsigned => of_table(unary::exp(from, to)?),
        Unary::Gelu => of_table(unary::gelu(from, to, false)),
        Unary::GeluTanh => of_table(unary::gelu(from, to, true)),
        Unary::HardSwish if !wide => Table::new(&function, from, to, unary::hard_swish(from, to)?),
        Unary::LeakyRelu { alpha } => Table::new(&function, from, to, unary::leaky_relu(from, to, alpha)?),
        Unary::Log if !unsigned => of_table(unary::log(from, to)?),
        Unary::Logistic => {
            let sigmoid = Sigmoid::logistic(from, to)?;
            Table::new(&function, from, to, move |x| sigmoid.at(x))
        }
        Unary::Rsqrt if !unsigned => {
            let rsqrt = Rsqrt::new(from, to)?;
            Table::new(&function, from, to, move |x| rsqrt.at(x))
        }
        Unary::Sqrt if !unsigned => Table::new(&function, from, to, unary::sqrt(from, to)?),
        Unary::Tanh => {
            let sigmoid = Sigmoid::tanh(from, to)?;
            Table::new(&function, from, to, move |x| sigmoid.at(x))
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph_core::TensorType;

    #[test]
    fn negative_values_count_from_the_end() {
        let signed = Steps::new(TensorType::Int8, 0.5, -1).unwrap();
        let unsigned = Steps::new(TensorType::UInt8, 0.25, 10).unwrap();
        let table = |function, from, to| {
            table(function, from, to).unwrap().map(|table| table.entries().collect::<Vec<_>>())
        };
        let relu = table(Unary::RELU, signed, unsigned).unwrap();
        assert_eq!((relu[0], relu[127], relu[128], relu[255]), (12, 255, 10, 10));
        let output = Steps::new(TensorType::Int8, 1.0 / 128.0, 0).unwrap();
        let tanh = table(Unary::Tanh, unsigned, output).unwrap();
        assert_eq!((tanh[0], tanh[10], tanh[14], tanh[255]), (-126, 0, 97, 127));
        assert_eq!(table(Unary::Exp, unsigned, output), None);
        let wide = Steps::new(TensorType::Int16, 0.5, 0).unwrap();
        let negated = table(Unary::LeakyRelu { alpha: -1.0 }, wide, wide).unwrap();
        assert_eq!((negated.len(), negated[7], negated[65_536 - 7]), (65_536, 7, 7));
    }
}

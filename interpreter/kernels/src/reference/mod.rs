//! Reference kernels: short and plain code, which defines the expected results.

use crate::families::{declare_families, for_each_family};

pub(crate) mod binary_quantized;

pub(crate) use reduce::{Reduction, mean_of, sum_of};
pub(crate) use resize::Nearest;
pub(crate) use topk::sort as sort_positions;
pub(crate) use transpose_conv::{Scatter, repeat as repeat_bias, scatter as transpose_conv_scatter};

macro_rules! reference {
    ($($family:ident $(+ $mark:ident)?),* $(,)?) => {
        declare_families! { "reference", "", $($family),* }
    };
}
for_each_family!(reference);

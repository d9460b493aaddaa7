//! The functions of `c_api_opaque.h`: the graph for custom ops and delegates that know no layouts.

pub(crate) mod builder;
pub(crate) mod context;
pub(crate) mod node;
pub(crate) mod strings;
pub(crate) mod tensor;

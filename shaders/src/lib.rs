//! WGSL compute kernels of Delegraph and the template layer that specialises them.

//! The optimized kernels: what users run. Each family that is not here falls back to its reference kernel.

use delegraph_core::MutableOpResolver;

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Registers every optimized kernel for the versions that it implements.
        pub fn register(resolver: &mut MutableOpResolver) {
            $($family::register(resolver);)*
            let _ = resolver;
        }
    };
}

families! {}

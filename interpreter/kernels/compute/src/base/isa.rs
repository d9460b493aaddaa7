//! Instruction sets of the inner loops: their names, their use by each kind of kernel, and the choice at run time.

use std::sync::OnceLock;

/// Environment variable that names the set to use instead of the fastest one.
pub const ISA_VARIABLE: &str = "DELEGRAPH_ISA";

/// An instruction set that this processor has.
///
/// Values come from [`Isa::BASELINE`], which every processor of the target has, and from functions that query the
/// processor. So a value proves that the instructions exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isa(Level);

/// Instruction sets that inner loops are compiled for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    #[cfg(portable)]
    Portable,
    #[cfg(target_arch = "x86_64")]
    Sse41,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    NeonDot,
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedDot,
}

/// Instructions of loops over floats, and of loops that the compiler vectorizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(portable), expect(dead_code, reason = "see `Isa::BASELINE`"))]
pub(crate) enum Floats {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Sse41,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
}

/// Instructions of products of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(portable), expect(dead_code, reason = "see `Isa::BASELINE`"))]
pub(crate) enum Bytes {
    Portable,
    /// Sums of pairs of 16-bit products (`pmaddwd`), 128 bits.
    #[cfg(target_arch = "x86_64")]
    Sse41,
    /// Sums of pairs of 16-bit products (`vpmaddwd`), 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// `vpdpbusd` of AVX-VNNI, 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// `vpdpbusd` of AVX-512 VNNI and VL, 256 bits.
    #[cfg(target_arch = "x86_64")]
    VnniVl,
    /// `vpdpbusd`, 512 bits.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// Products of bytes with 16 bits, summed in pairs (`smull` and `sadalp`).
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// `sdot`.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
    /// `smmla` in matrix products, `sdot` elsewhere.
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
    /// `i32x4.dot_i16x8_s`.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
    /// `i32x4.relaxed_dot_i8x16_i7x16_add_s` where it has the results of `vpdpbusd`, 128 bits.
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedDot,
}

impl Isa {
    /// The set that every processor has.
    #[cfg(portable)]
    pub const BASELINE: Self = Self(Level::Portable);

    /// The set that every processor has. A portable set beside it would be an eighth of the module's code, which pages
    /// would load without using it.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    pub const BASELINE: Self = Self(Level::Simd128);

    /// The set that every processor has.
    #[cfg(all(target_arch = "x86_64", not(portable)))]
    pub const BASELINE: Self = Self(Level::Sse41);

    /// Returns the set that kernels use: the fastest one of this processor, or the available one that the environment
    /// variable [`ISA_VARIABLE`] named when this function was first called.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let fastest = Self::available().last().copied().unwrap_or(Self::BASELINE);
            let Some(name) = std::env::var_os(ISA_VARIABLE) else { return fastest };
            let named = name.to_str().and_then(Self::named);
            if named.is_none() {
                log::warn!(
                    "{ISA_VARIABLE}: {name:?} is not an instruction set of this processor; using {}",
                    fastest.name()
                );
            }
            named.unwrap_or(fastest)
        })
    }

    /// Returns the set of a name, if this processor has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().iter().copied().find(|isa| isa.name() == name)
    }

    /// Returns all sets of this processor, slowest first. Tests run each of them.
    pub fn available() -> &'static [Self] {
        static ALL: OnceLock<Vec<Isa>> = OnceLock::new();
        ALL.get_or_init(detect)
    }

    /// Names of all sets for this architecture, slowest first, including sets that this processor lacks.
    pub fn all_names() -> &'static [&'static str] {
        if cfg!(target_arch = "x86_64") {
            let all = &["portable", "sse4.1", "avx2", "avx2vnni", "avx512", "avx512vnni"];
            if cfg!(portable) { all } else { &all[1..] }
        } else if cfg!(target_arch = "aarch64") {
            &["portable", "neon", "neon-dotprod", "neon-i8mm"]
        } else if cfg!(target_arch = "wasm32") {
            if cfg!(target_feature = "relaxed-simd") {
                &["relaxed-simd", "relaxed-dot"]
            } else {
                &["simd128"]
            }
        } else {
            &["portable"]
        }
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(portable)]
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Sse41 => "sse4.1",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2Vnni => "avx2vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => "avx512vnni",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => "neon-dotprod",
            #[cfg(target_arch = "aarch64")]
            Level::NeonI8mm => "neon-i8mm",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 if cfg!(target_feature = "relaxed-simd") => "relaxed-simd",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => "simd128",
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedDot => "relaxed-dot",
        }
    }

    /// Instructions of float kernels, and of kernels that the compiler vectorizes, for reports.
    pub fn float_instructions(self) -> &'static str {
        match self.floats() {
            Floats::Portable => "baseline of the target",
            #[cfg(target_arch = "x86_64")]
            Floats::Sse41 => "4 lanes, mulps and addps",
            #[cfg(target_arch = "x86_64")]
            Floats::Avx2 => "8 lanes, vfmadd",
            #[cfg(target_arch = "x86_64")]
            Floats::Avx512 => "16 lanes, vfmadd",
            #[cfg(target_arch = "aarch64")]
            Floats::Neon => "4 lanes, fmla",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Floats::Simd128 if cfg!(target_feature = "relaxed-simd") => "4 lanes, f32x4.relaxed_madd",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Floats::Simd128 => "4 lanes, f32x4.mul and f32x4.add",
        }
    }

    /// Instructions of products of 8-bit integers, for reports.
    pub fn byte_instructions(self) -> &'static str {
        match self.bytes() {
            Bytes::Portable => "baseline of the target",
            #[cfg(target_arch = "x86_64")]
            Bytes::Sse41 => "pmaddwd",
            #[cfg(target_arch = "x86_64")]
            Bytes::Avx2 => "vpmaddwd, 256 bits",
            #[cfg(target_arch = "x86_64")]
            Bytes::AvxVnni => "vpdpbusd, 256 bits (AVX-VNNI)",
            #[cfg(target_arch = "x86_64")]
            Bytes::VnniVl => "vpdpbusd, 256 bits (AVX-512 VL)",
            #[cfg(target_arch = "x86_64")]
            Bytes::Vnni => "vpdpbusd, 512 bits",
            #[cfg(target_arch = "aarch64")]
            Bytes::Neon => "smull and sadalp",
            #[cfg(target_arch = "aarch64")]
            Bytes::NeonDot => "sdot",
            #[cfg(target_arch = "aarch64")]
            Bytes::NeonI8mm => "smmla; sdot in depthwise convolutions",
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Bytes::Simd128 => "i32x4.dot_i16x8_s",
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Bytes::RelaxedDot => "i32x4.relaxed_dot_i8x16_i7x16_add_s",
        }
    }

    /// The instructions of loops over floats.
    #[inline(always)]
    pub(crate) fn floats(self) -> Floats {
        match self.0 {
            #[cfg(portable)]
            Level::Portable => Floats::Portable,
            #[cfg(target_arch = "x86_64")]
            Level::Sse41 => Floats::Sse41,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx2Vnni => Floats::Avx2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Vnni => Floats::Avx512,
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::NeonDot | Level::NeonI8mm => Floats::Neon,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Floats::Simd128,
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedDot => Floats::Simd128,
        }
    }

    /// The instructions of products of bytes.
    #[inline(always)]
    pub(crate) fn bytes(self) -> Bytes {
        match self.0 {
            #[cfg(portable)]
            Level::Portable => Bytes::Portable,
            #[cfg(target_arch = "x86_64")]
            Level::Sse41 => Bytes::Sse41,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => Bytes::Avx2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2Vnni if is_x86_feature_detected!("avxvnni") => Bytes::AvxVnni,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2Vnni => Bytes::VnniVl,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => Bytes::Vnni,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Bytes::Neon,
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => Bytes::NeonDot,
            #[cfg(target_arch = "aarch64")]
            Level::NeonI8mm => Bytes::NeonI8mm,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Bytes::Simd128,
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Level::RelaxedDot => Bytes::RelaxedDot,
        }
    }
}

/// Returns the sets of this processor, slowest first.
#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Isa> {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
    let sets = [
        #[cfg(portable)]
        (true, Level::Portable),
        (is_x86_feature_detected!("sse4.1"), Level::Sse41),
        (avx2, Level::Avx2),
        (vnni || (avx2 && is_x86_feature_detected!("avxvnni")), Level::Avx2Vnni),
        (avx512, Level::Avx512),
        (vnni, Level::Avx512Vnni),
    ];
    available_of(&sets)
}

/// Returns the sets of this processor, slowest first.
#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<Isa> {
    use std::arch::is_aarch64_feature_detected as has;
    let dot = has!("neon") && has!("dotprod");
    let sets = [
        (true, Level::Portable),
        (has!("neon"), Level::Neon),
        (dot, Level::NeonDot),
        (dot && has!("i8mm"), Level::NeonI8mm),
    ];
    available_of(&sets)
}

/// Returns the sets of this module. WebAssembly has no detection: a module with vector instructions does not load if
/// they are missing. Only results of relaxed instructions depend on the processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<Isa> {
    let sets = [
        (true, Isa::BASELINE.0),
        #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
        (has_unsigned_dot(), Level::RelaxedDot),
    ];
    available_of(&sets)
}

/// Returns whether `i32x4.relaxed_dot_i8x16_i7x16_add_s` multiplies signed by unsigned bytes and adds all four products
/// modulo 2^32, as `vpdpbusd` does. WebAssembly also allows signed bytes in the second operand, and sums of two products
/// that saturate to 16 bits; the choice is the same for all operands and for the lifetime of an instance.
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
fn has_unsigned_dot() -> bool {
    use std::arch::wasm32::*;
    use std::hint::black_box;

    // Signed products differ from these sums in every lane, and saturating sums in all lanes but the third.
    let signed =
        black_box([[127i8, 127, 1, -1], [-128, -128, -128, -128], [-1, 127, -128, 3], [127, 127, 127, 127]]);
    let unsigned =
        black_box([[255u8, 255, 128, 129], [255, 255, 255, 255], [200, 255, 255, 254], [255, 254, 253, 252]]);
    let start = black_box([5i32, i32::MIN, -7, i32::MAX]);
    let mut expected = start;
    for (sum, (signed, unsigned)) in expected.iter_mut().zip(signed.iter().zip(&unsigned)) {
        for (a, b) in signed.iter().zip(unsigned) {
            *sum = sum.wrapping_add(i32::from(*a) * i32::from(*b));
        }
    }
    let mut got = [0i32; 4];
    // SAFETY: the module is compiled with these instructions; all arrays have 16 bytes.
    unsafe {
        let load = |p: *const u8| v128_load(p.cast());
        let (a, b) = (load(signed.as_ptr().cast()), load(unsigned.as_ptr().cast()));
        let sums = i32x4_relaxed_dot_i8x16_i7x16_add(a, b, load(start.as_ptr().cast()));
        v128_store(got.as_mut_ptr().cast(), sums);
    }
    got == expected
}

fn available_of(sets: &[(bool, Level)]) -> Vec<Isa> {
    sets.iter().filter(|(exists, _)| *exists).map(|(_, level)| Isa(*level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_once_and_found_by_name() {
        let names: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        let mut known = Isa::all_names().iter();
        // In the same order.
        assert!(names.iter().all(|name| known.any(|known| known == name)), "{names:?}");
        for &isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()), Some(isa));
            assert!(!isa.float_instructions().is_empty() && !isa.byte_instructions().is_empty());
        }
        assert_eq!(Isa::named("avx9000"), None);
    }
}

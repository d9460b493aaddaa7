//! The spec of a kernel, of any shader family.

use delegraph_shaders as shaders;
use shaders::binary::Binary;
use shaders::reduce::Reduce;
use shaders::unary::Unary;
use shaders::{
    Activation, Binding, Caps, Element, Epilogue, Kernel, OtherSizes, Shader, ShaderError, Variant,
};

use super::Weights;

/// How a kernel treats its floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floats {
    /// Operands and result may have 16 bits.
    Any,
    /// Operands may have 16 bits. The result may be far larger or smaller than they are.
    WideResult,
    /// All have 32 bits: a rounded operand changes an integer result, or the kernel belongs to the application.
    Exact,
}

/// Copies one input of a concatenation into its part of the output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Join {
    /// The spec of the whole concatenation.
    pub spec: shaders::concatenation::Spec,
    /// Index of the input.
    pub part: usize,
}

impl Shader for Join {
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut kernel = self.spec.kernel(self.part, caps)?;
        // This step has a single input.
        for binding in &mut kernel.variant.bindings {
            if let Binding::Input(n) = binding {
                *n = 0;
            }
        }
        Ok(kernel)
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        self.spec.other_sizes()
    }
}

impl Join {
    /// Returns the offset of the part in the output, in bytes, where the part is contiguous.
    pub(crate) fn piece(&self) -> Option<u64> {
        let input = self.spec.inputs.get(self.part)?;
        let (outer, inner) = input.split_at_checked(self.spec.axis)?;
        let inner: u64 = inner.iter().skip(1).map(|&d| u64::from(d)).product();
        let before = self.spec.inputs.iter().take(self.part);
        let before: u64 = before.filter_map(|i| i.get(self.spec.axis)).map(|&d| u64::from(d)).sum();
        outer.iter().all(|&d| d == 1).then_some(before * inner * 4)
    }
}

/// A kernel whose weights are its second input, laid out by other steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Computed(pub Box<Spec>);

impl Computed {
    fn bind(mut variant: Variant) -> Variant {
        for binding in variant.bindings.iter_mut().filter(|binding| **binding == Binding::Weights) {
            *binding = Binding::Input(1);
        }
        variant
    }
}

impl Shader for Computed {
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let kernel = match &*self.0 {
            // A resize may change the size of the filter.
            Spec::Conv2D(spec) => spec.any_filter(caps)?,
            Spec::DepthwiseConv2D(spec) => spec.any_window(caps)?,
            Spec::TransposeConv(spec) => spec.any_filter(caps)?,
            spec => spec.kernel(caps)?,
        };
        Ok(Kernel { variant: Self::bind(kernel.variant), ..kernel })
    }

    fn other_sizes(&self, caps: &Caps) -> OtherSizes {
        let variants = match &*self.0 {
            Spec::Conv2D(spec) => spec.any_filter_variants(caps),
            Spec::DepthwiseConv2D(spec) => spec.any_window_variants(caps),
            Spec::TransposeConv(spec) => spec.any_filter_variants(caps),
            spec => return spec.other_sizes(caps),
        };
        OtherSizes::Variants(variants.into_iter().map(Self::bind).collect())
    }
}

macro_rules! specs {
    ($($variant:ident($spec:path),)*) => {
        /// The spec of a kernel, of any family.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub(crate) enum Spec {
            $($variant($spec),)*
        }

        impl Shader for Spec {
            fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
                let kernel = match self {
                    $(Spec::$variant(spec) => spec.kernel(caps),)*
                }?;
                kernel.check_iterations(caps)?;
                Ok(kernel)
            }

            fn other_sizes(&self, caps: &Caps) -> OtherSizes {
                match self {
                    $(Spec::$variant(spec) => spec.other_sizes(caps),)*
                }
            }
        }

        $(impl From<$spec> for Spec {
            fn from(spec: $spec) -> Self {
                Spec::$variant(spec)
            }
        })*
    };
}

specs! {
    ArgMinMax(shaders::arg_min_max::Spec),
    BatchMatMul(shaders::batch_matmul::Spec),
    BatchMatMulWide(shaders::batch_matmul_wide::Spec),
    Binary(shaders::binary::Spec),
    BinaryQuantized(shaders::binary_quantized::Spec),
    Bitcast(shaders::bitcast::Spec),
    Cast(shaders::cast::Spec),
    Check(shaders::check::Spec),
    ComplexAbs(shaders::complex::Abs),
    Computed(Computed),
    Conv2D(shaders::conv_2d::Spec),
    Conv3D(shaders::conv_3d::Spec),
    Cumsum(shaders::cumsum::Spec),
    Custom(crate::custom::Spec),
    DepthToSpace(shaders::depth_to_space::Spec),
    DepthwiseConv2D(shaders::depthwise_conv_2d::Spec),
    DynamicUpdateSlice(shaders::dynamic_update_slice::Spec),
    EmbeddingLookup(shaders::embedding_lookup::Spec),
    FullyConnected(shaders::fully_connected::Spec),
    Gather(shaders::gather::Spec),
    GatherNd(shaders::gather_nd::Spec),
    Join(Join),
    FourierTransform(shaders::complex::Transform),
    L2Normalization(shaders::l2_normalization::Spec),
    LandmarksCrop(shaders::landmarks::Crop),
    LandmarksTransform(shaders::landmarks::Transform),
    LocalResponseNormalization(shaders::local_response_normalization::Spec),
    Long(shaders::long::Spec),
    LongConvert(shaders::long::Convert),
    Lstm(shaders::lstm::Spec),
    LstmBasic(shaders::lstm_basic::Spec),
    LstmQuantized(shaders::lstm_quantized::Spec),
    MaxPool(shaders::max_pooling::Pool),
    MaxUnpool(shaders::max_pooling::Unpool),
    OneHot(shaders::one_hot::Spec),
    Pad(shaders::pad::Spec),
    Pool2D(shaders::pool_2d::Spec),
    Quantize(shaders::quantize::Spec),
    Reduce(shaders::reduce::Spec),
    ReduceOrdered(shaders::reduce_ordered::Spec),
    Resample(shaders::resample::Spec),
    Rescale(shaders::rescale::Spec),
    Resize(shaders::resize::Spec),
    Scatter(shaders::scatter::Spec),
    Rnn(shaders::rnn::Spec),
    RowScales(shaders::row_scales::Spec),
    RowSteps(shaders::row_steps::Spec),
    Select(shaders::select::Spec),
    Slice(shaders::slice::Spec),
    Softmax(shaders::softmax::Spec),
    SoftmaxQuantized(shaders::softmax_quantized::Spec),
    SoftmaxWide(shaders::softmax_wide::Spec),
    Table(shaders::table::Spec),
    Tile(shaders::tile::Spec),
    TopK(shaders::topk::Spec),
    Transpose(shaders::transpose::Spec),
    TransposeConv(shaders::transpose_conv::Spec),
    Unary(shaders::unary::Spec),
}

impl Spec {
    /// Returns the epilogue, where the kernel has one that computes floats.
    pub(crate) fn epilogue_mut(&mut self) -> Option<&mut Epilogue> {
        let epilogue = match self {
            Spec::Conv2D(spec) => Some(&mut spec.epilogue),
            Spec::DepthwiseConv2D(spec) => Some(&mut spec.epilogue),
            Spec::FullyConnected(spec) => Some(&mut spec.epilogue),
            Spec::TransposeConv(spec) => Some(&mut spec.epilogue),
            _ => None,
        };
        epilogue.filter(|epilogue| !epilogue.is_fixed())
    }

    /// Returns the place of an activation, where the kernel can apply one to its result.
    pub(crate) fn activation_mut(&mut self) -> Option<&mut Activation> {
        match self {
            Spec::Binary(spec) => {
                (spec.element == Element::F32 && !spec.op.compares()).then_some(&mut spec.activation)
            }
            Spec::Conv3D(spec) => Some(&mut spec.activation),
            Spec::BatchMatMul(spec) => spec.integers.is_none().then_some(&mut spec.activation),
            Spec::Pool2D(spec) => Some(&mut spec.activation),
            Spec::Reduce(spec) => (spec.element == Element::F32).then_some(&mut spec.activation),
            _ => {
                let epilogue = self.epilogue_mut()?;
                Some(epilogue.residual.as_mut().unwrap_or(&mut epilogue.activation))
            }
        }
    }

    /// Returns how the kernel treats its floats.
    pub(crate) fn floats(&self) -> Floats {
        // Each kernel is listed: 16 bits in a kernel that needs 32 give wrong results.
        match self {
            // Integers, indices and positions, or bits.
            Spec::ArgMinMax(_)
            | Spec::BatchMatMulWide(_)
            | Spec::BinaryQuantized(_)
            | Spec::Bitcast(_)
            | Spec::Cast(_)
            | Spec::Check(_)
            | Spec::Custom(_)
            | Spec::LandmarksCrop(_)
            | Spec::LandmarksTransform(_)
            | Spec::Long(_)
            | Spec::LongConvert(_)
            | Spec::LstmQuantized(_)
            | Spec::MaxPool(_)
            | Spec::MaxUnpool(_)
            | Spec::Quantize(_)
            | Spec::ReduceOrdered(_)
            | Spec::Resample(_)
            | Spec::Rescale(_)
            | Spec::RowScales(_)
            | Spec::RowSteps(_)
            | Spec::SoftmaxQuantized(_)
            | Spec::SoftmaxWide(_)
            | Spec::Table(_)
            | Spec::TopK(_) => Floats::Exact,
            Spec::ComplexAbs(_) | Spec::Cumsum(_) | Spec::FourierTransform(_) => Floats::WideResult,
            Spec::Binary(spec) => of_binary(spec.op),
            Spec::Reduce(spec) => match spec.op {
                Reduce::Sum | Reduce::Prod => Floats::WideResult,
                Reduce::Mean | Reduce::Max | Reduce::Min => Floats::Any,
            },
            Spec::Unary(spec) => {
                let any_is = |floats| spec.steps.iter().any(|unary| of_unary(unary) == floats);
                if any_is(Floats::Exact) {
                    Floats::Exact
                } else if any_is(Floats::WideResult) {
                    Floats::WideResult
                } else {
                    Floats::Any
                }
            }
            Spec::BatchMatMul(spec) if spec.integers.is_some() => Floats::Exact,
            Spec::Computed(Computed(spec)) => spec.floats(),
            Spec::BatchMatMul(_)
            | Spec::Conv2D(_)
            | Spec::Conv3D(_)
            | Spec::DepthToSpace(_)
            | Spec::DepthwiseConv2D(_)
            | Spec::DynamicUpdateSlice(_)
            | Spec::EmbeddingLookup(_)
            | Spec::FullyConnected(_)
            | Spec::Gather(_)
            | Spec::GatherNd(_)
            | Spec::Join(_)
            | Spec::L2Normalization(_)
            | Spec::LocalResponseNormalization(_)
            | Spec::Lstm(_)
            | Spec::LstmBasic(_)
            | Spec::OneHot(_)
            | Spec::Pad(_)
            | Spec::Pool2D(_)
            | Spec::Resize(_)
            | Spec::Rnn(_)
            | Spec::Scatter(_)
            | Spec::Select(_)
            | Spec::Slice(_)
            | Spec::Softmax(_)
            | Spec::Tile(_)
            | Spec::Transpose(_)
            | Spec::TransposeConv(_) => Floats::Any,
        }
    }

    /// Returns the flag for 16-bit weights, where the kernel supports them.
    pub(crate) fn halves_mut(&mut self) -> Option<&mut bool> {
        match self {
            Spec::Conv2D(spec) => Some(&mut spec.epilogue.halves),
            Spec::FullyConnected(spec) => Some(&mut spec.epilogue.halves),
            Spec::TransposeConv(spec) => Some(&mut spec.epilogue.halves),
            _ => None,
        }
    }

    fn holds_halves(&self) -> bool {
        match self {
            Spec::Conv2D(spec) => spec.epilogue.halves,
            Spec::FullyConnected(spec) => spec.epilogue.halves,
            Spec::TransposeConv(spec) => spec.epilogue.halves,
            _ => false,
        }
    }

    /// Returns filter and bias in the kernel's layout; `None` for kernels that do not take such weights.
    pub(crate) fn pack_weights(&self, weights: &Weights<'_>) -> Option<Vec<u8>> {
        fn bytes<T: bytemuck::Pod>(words: Vec<T>) -> Vec<u8> {
            bytemuck::pod_collect_to_vec(&words)
        }
        // A bias consists of whole vectors of four.
        let fours = |channels: u32| channels.next_multiple_of(4) as usize;
        Some(match weights {
            Weights::Floats { filter, bias } if self.holds_halves() => bytes(match self {
                Spec::Conv2D(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.output[3]))
                }
                Spec::FullyConnected(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.outputs))
                }
                Spec::TransposeConv(spec) => {
                    shaders::halves(&spec.pack_weights(filter, bias.as_deref()), fours(spec.output[3]))
                }
                _ => return None,
            }),
            Weights::Floats { filter, bias } => bytes(match self {
                Spec::Conv2D(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::DepthwiseConv2D(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::FullyConnected(spec) => spec.pack_weights(filter, bias.as_deref()),
                Spec::TransposeConv(spec) => spec.pack_weights(filter, bias.as_deref()),
                _ => return None,
            }),
            Weights::Integers { filter, channels } => bytes(match self {
                Spec::Conv2D(spec) => spec.pack_integers(filter, channels),
                Spec::DepthwiseConv2D(spec) => spec.pack_integers(filter, channels),
                Spec::FullyConnected(spec) => spec.pack_integers(filter, channels),
                Spec::TransposeConv(spec) => spec.pack_integers(filter, channels),
                _ => return None,
            }),
        })
    }
}

fn of_binary(op: Binary) -> Floats {
    match op {
        Binary::Div | Binary::Pow | Binary::SquaredDifference => Floats::WideResult,
        // A rounded operand may cross an integer.
        Binary::FloorDiv | Binary::FloorMod | Binary::Remainder => Floats::Exact,
        Binary::Equal
        | Binary::NotEqual
        | Binary::Less
        | Binary::LessEqual
        | Binary::Greater
        | Binary::GreaterEqual
        | Binary::LogicalAnd
        | Binary::LogicalOr => Floats::Exact,
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Minimum
        | Binary::Maximum
        | Binary::Prelu
        | Binary::Atan2
        | Binary::BitwiseXor
        | Binary::BitwiseAnd
        | Binary::BitwiseOr
        | Binary::ShiftRight
        | Binary::ShiftLeft => Floats::Any,
    }
}

fn of_unary(unary: &Unary) -> Floats {
    match unary {
        Unary::Ceil | Unary::Floor | Unary::Round | Unary::Sign => Floats::Exact,
        Unary::Exp | Unary::Rsqrt | Unary::Square => Floats::WideResult,
        Unary::Abs
        | Unary::Affine { .. }
        | Unary::Cbrt
        | Unary::Clamp { .. }
        | Unary::Cos
        | Unary::Elu
        | Unary::Gelu
        | Unary::GeluTanh
        | Unary::HardSwish
        | Unary::LeakyRelu { .. }
        | Unary::Log
        | Unary::Logistic
        | Unary::Neg
        | Unary::Sin
        | Unary::Sqrt
        | Unary::Tanh => Floats::Any,
    }
}

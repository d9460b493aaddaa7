//! Variants of a shader. A device compiles a variant once and dispatches it with many uniforms.

use std::fmt;
use std::sync::Arc;

use crate::template::Template;
use crate::{Binding, Features, ShaderError, half_storage};

/// Identifies a [`Variant`]: the family of the shader with the values that specialize it.
///
/// Equal keys mean equal sources, entry points and features, and bindings with equal [access](Binding::access).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariantKey(Arc<str>);

impl VariantKey {
    /// Returns the key as text, such as `cast:CONVERSION=value,FOLDED=1,…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for VariantKey {
    fn from(key: String) -> Self {
        Self(key.into())
    }
}

impl fmt::Display for VariantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A specialized shader: everything that a pipeline is compiled from.
///
/// Shapes, strides and bounds are uniforms and not part of the variant. [`Variant::source`] renders the WGSL text; the
/// key is known without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Shader family, such as `conv_2d`.
    pub name: &'static str,
    /// Identifies the pipeline.
    pub key: VariantKey,
    /// Entry point.
    pub entry: &'static str,
    /// Bindings of group 0, in order of their binding numbers.
    pub bindings: Vec<Binding>,
    /// Language features that the source uses beyond plain WGSL.
    pub features: Features,
    source: Source,
    /// The binding numbers of buffers of 16-bit floats, a bit each.
    halves: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Template(Template),
    Text(Arc<str>),
}

impl Variant {
    pub(crate) fn new(name: &'static str, template: Template, bindings: Vec<Binding>) -> Self {
        Self {
            name,
            key: template.key().into(),
            entry: "main",
            bindings,
            features: Features::default(),
            source: Source::Template(template),
            halves: 0,
        }
    }

    pub(crate) fn with_features(self, features: Features) -> Self {
        Self { features, ..self }
    }

    /// Creates a variant whose source is given as text. `key` must identify the text.
    pub fn from_text(
        name: &'static str,
        key: impl Into<VariantKey>,
        text: impl Into<Arc<str>>,
        bindings: Vec<Binding>,
        features: Features,
    ) -> Self {
        let source = Source::Text(text.into());
        Self { name, key: key.into(), entry: "main", bindings, features, source, halves: 0 }
    }

    /// Returns the variant that stores 16-bit floats, where it has 32-bit words, in the buffers whose binding numbers are
    /// the set bits of `bindings`. Loads convert to 32 bits, so accumulation is unchanged; stores round, and limit finite
    /// numbers to ±65,504. The device needs [`Caps::f16`](crate::Caps::f16).
    pub fn with_halves(mut self, bindings: u32) -> Self {
        if bindings != 0 {
            self.key = VariantKey::from(format!("{};halves={bindings:x}", self.key));
            self.features.f16 = true;
            self.halves |= bindings;
        }
        self
    }

    /// Returns the binding numbers of buffers of 16-bit floats, a bit each.
    pub fn halves(&self) -> u32 {
        self.halves
    }

    /// Returns the WGSL source.
    ///
    /// # Errors
    /// [`ShaderError::Template`] for a template that does not render, or a buffer that has no form with 16-bit floats.
    /// Both are defects of this crate.
    pub fn source(&self) -> Result<Arc<str>, ShaderError> {
        let text = match &self.source {
            Source::Template(template) => template.render()?.into(),
            Source::Text(text) => Arc::clone(text),
        };
        if self.halves == 0 {
            return Ok(text);
        }
        let is_half = |binding| self.halves.checked_shr(binding).is_some_and(|bits| bits & 1 == 1);
        let halved = half_storage::rewrite(&text, is_half);
        halved.map(Into::into).map_err(|why| ShaderError::Template { kernel: self.name, line: 1, why })
    }
}

impl Template {
    /// Returns the variant of the shader family `name`. `UNIFORM` becomes the binding number of the uniform block.
    pub(crate) fn variant(self, name: &'static str, bindings: impl IntoIterator<Item = Binding>) -> Variant {
        let bindings: Vec<Binding> = bindings.into_iter().collect();
        let uniform = (0..).zip(&bindings).find(|(_, binding)| **binding == Binding::Uniform);
        Variant::new(name, self.number("UNIFORM", uniform.map_or(0, |(number, _)| number)), bindings)
    }
}

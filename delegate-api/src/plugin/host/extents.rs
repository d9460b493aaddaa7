//! Checks that a file is a complete shared library for this machine.
//!
//! The system's loader maps the ranges in the file's tables without checking the length of the file: a truncated
//! library ends the process with a signal. The tables are therefore compared with the length first.

use std::path::Path;

use delegraph_core::error::counted;
use delegraph_core::types::open_regular;
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader, SectionHeader};
use object::read::macho::{FatArch, MachHeader, MachOFatFile32, Segment};
use object::read::pe::ImageNtHeaders;
use object::{Endianness, FileKind, ReadCache, ReadRef, elf, macho, pe};

use super::PluginError;

/// The reason why a file is not loaded.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// The file is not a library, or is incomplete. With the error of the parser, if it found that.
    Invalid(String, Option<object::Error>),
    /// The library is for another machine.
    Incompatible(String),
}

/// The properties of libraries for this machine.
#[derive(Clone, Copy)]
struct Wanted {
    format: Format,
    /// The architecture's name in Rust.
    arch: &'static str,
    bits: usize,
    little_endian: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Elf,
    MachO,
    Pe,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Elf => "an ELF file (Linux, Android, BSD)",
            Format::MachO => "a Mach-O file (macOS, iOS)",
            Format::Pe => "a PE file (Windows)",
        }
    }
}

const HERE: Wanted = Wanted {
    format: if cfg!(target_vendor = "apple") {
        Format::MachO
    } else if cfg!(windows) {
        Format::Pe
    } else {
        Format::Elf
    },
    arch: std::env::consts::ARCH,
    bits: usize::BITS as usize,
    little_endian: cfg!(target_endian = "little"),
};

/// Architectures, with their number in each format; 0 if the format does not support them.
const MACHINES: &[(&str, u16, u32, u16)] = &[
    ("x86_64", elf::EM_X86_64, macho::CPU_TYPE_X86_64, pe::IMAGE_FILE_MACHINE_AMD64),
    ("aarch64", elf::EM_AARCH64, macho::CPU_TYPE_ARM64, pe::IMAGE_FILE_MACHINE_ARM64),
    ("x86", elf::EM_386, macho::CPU_TYPE_X86, pe::IMAGE_FILE_MACHINE_I386),
    ("arm", elf::EM_ARM, macho::CPU_TYPE_ARM, pe::IMAGE_FILE_MACHINE_ARMNT),
    ("riscv64", elf::EM_RISCV, 0, 0),
    ("loongarch64", elf::EM_LOONGARCH, 0, 0),
    ("powerpc64", elf::EM_PPC64, 0, 0),
    ("s390x", elf::EM_S390, 0, 0),
];

/// Checks that the file at `path` is a complete shared library for this machine.
pub(super) fn check(path: &Path) -> Result<(), PluginError> {
    let file =
        open_regular(path).map_err(|e| PluginError::invalid_file_caused_by(path, "cannot be read", e))?;
    check_data(&ReadCache::new(file), HERE).map_err(|refusal| match refusal {
        Refusal::Invalid(message, None) => PluginError::invalid_file(path, message),
        Refusal::Invalid(message, Some(error)) => PluginError::invalid_file_caused_by(path, message, error),
        Refusal::Incompatible(message) => PluginError::incompatible(path, message),
    })
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Invalid(message.into(), None))
}

impl From<object::Error> for Refusal {
    fn from(error: object::Error) -> Self {
        Refusal::Invalid("not a shared library, or a damaged or truncated one".into(), Some(error))
    }
}

fn check_data<'d, R: ReadRef<'d>>(data: R, wanted: Wanted) -> Result<(), Refusal> {
    let len = data.len().map_err(|()| Refusal::Invalid("its length is not known".into(), None))?;
    if len == 0 {
        return invalid("the file is empty");
    }
    let Ok(kind) = FileKind::parse(data) else {
        return invalid("not a shared library");
    };
    let found = match kind {
        FileKind::Elf32 | FileKind::Elf64 => Format::Elf,
        FileKind::MachO32 | FileKind::MachO64 | FileKind::MachOFat32 | FileKind::MachOFat64 => Format::MachO,
        FileKind::Pe32 | FileKind::Pe64 => Format::Pe,
        _ => return invalid("not a shared library"),
    };
    if found != wanted.format {
        let (found, wanted) = (found.name(), wanted.format.name());
        return Err(Refusal::Incompatible(format!(
            "it is {found}, this machine loads {wanted}: get the build for it"
        )));
    }
    let whole = Extent { len };
    match kind {
        FileKind::Elf32 => check_elf::<elf::FileHeader32<Endianness>, R>(data, whole, wanted),
        FileKind::Elf64 => check_elf::<elf::FileHeader64<Endianness>, R>(data, whole, wanted),
        FileKind::MachO64 => check_macho(data, 0, whole, wanted),
        FileKind::MachOFat32 => check_fat(data, whole, wanted),
        FileKind::Pe64 => check_pe::<pe::ImageNtHeaders64, R>(data, whole, wanted),
        FileKind::Pe32 => check_pe::<pe::ImageNtHeaders32, R>(data, whole, wanted),
        _ => invalid("a form of Mach-O that is not supported"),
    }
}

/// The range of a file's contents.
#[derive(Clone, Copy)]
struct Extent {
    len: u64,
}

impl Extent {
    fn holds(self, what: &str, offset: u64, size: u64) -> Result<(), Refusal> {
        match offset.checked_add(size) {
            Some(end) if end <= self.len => Ok(()),
            _ => invalid(format!(
                "the library is truncated or damaged: its {what} needs {} at offset {offset}, but the file has {}; copy \
                 or build it again",
                counted(size, "byte"),
                counted(self.len, "byte")
            )),
        }
    }
}

impl Wanted {
    /// Checks that a format's machine number is that of this machine.
    fn check_machine(
        self,
        found: u32,
        number: impl Fn(&(&str, u16, u32, u16)) -> u32,
    ) -> Result<(), Refusal> {
        let Some(own) = MACHINES.iter().find(|m| m.0 == self.arch).filter(|m| number(m) != 0) else {
            return Ok(());
        };
        if number(own) == found {
            return Ok(());
        }
        let other = MACHINES.iter().find(|m| number(m) == found);
        let found = other.map_or_else(|| format!("machine number {found}"), |m| m.0.into());
        Err(self.other_machine(&found))
    }

    fn other_machine(self, found: &str) -> Refusal {
        Refusal::Incompatible(format!(
            "the library is for {found}, this process runs on {}: get the build for it",
            self.arch
        ))
    }
}

fn check_elf<'d, H, R>(data: R, whole: Extent, wanted: Wanted) -> Result<(), Refusal>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let bits = if header.is_class_64() { 64 } else { 32 };
    if bits != wanted.bits {
        return Err(wanted.other_machine(&format!("{bits} bits")));
    }
    if (endian == Endianness::Little) != wanted.little_endian {
        return Err(wanted.other_machine("the other byte order"));
    }
    wanted.check_machine(header.e_machine(endian).into(), |m| m.1.into())?;
    if header.e_type(endian) != elf::ET_DYN {
        return invalid("an ELF file, but not a shared library");
    }
    for segment in header.program_headers(endian, data)? {
        whole.holds("segment", segment.p_offset(endian).into(), segment.p_filesz(endian).into())?;
        // A position-independent program has the type of a library, but another program cannot load it.
        let entries = segment.dynamic(endian, data).ok().flatten().unwrap_or_default();
        let flags = |e: &H::Dyn| if e.tag(endian) == elf::DT_FLAGS_1 { e.val(endian) } else { 0 };
        if entries.iter().any(|entry| flags(entry) & u64::from(elf::DF_1_PIE) != 0) {
            return invalid("a program, not a shared library");
        }
    }
    // Sections are not needed for running, but are at the end of the file, so their absence shows that it is truncated.
    for section in header.section_headers(endian, data)? {
        if !matches!(section.sh_type(endian), elf::SHT_NOBITS | elf::SHT_NULL) {
            whole.holds("section", section.sh_offset(endian).into(), section.sh_size(endian).into())?;
        }
    }
    Ok(())
}

/// Checks a file with libraries for several machines.
fn check_fat<'d, R: ReadRef<'d>>(data: R, whole: Extent, wanted: Wanted) -> Result<(), Refusal> {
    let file = MachOFatFile32::parse(data)?;
    let machines = || file.arches().iter().map(|arch| (arch.cputype(), arch.file_range()));
    for (machine, (offset, size)) in machines() {
        if wanted.check_machine(machine, |m| m.2).is_ok() {
            whole.holds("part for this machine", offset, size)?;
            return check_macho(data, offset, Extent { len: size }, wanted);
        }
    }
    let found = machines().next().map_or(0, |(machine, _)| machine);
    wanted.check_machine(found, |m| m.2)
}

/// Checks the library at `start`.
fn check_macho<'d, R: ReadRef<'d>>(
    data: R,
    start: u64,
    whole: Extent,
    wanted: Wanted,
) -> Result<(), Refusal> {
    let header = macho::MachHeader64::<Endianness>::parse(data, start)?;
    let endian = header.endian()?;
    wanted.check_machine(header.cputype(endian), |m| m.2)?;
    if !matches!(header.filetype(endian), macho::MH_DYLIB | macho::MH_BUNDLE) {
        return invalid("a Mach-O file, but not a shared library");
    }
    let mut commands = header.load_commands(endian, data, start)?;
    while let Some(command) = commands.next()? {
        if let Some((segment, _)) = command.segment_64()? {
            whole.holds("segment", segment.fileoff(endian), segment.filesize(endian))?;
        }
    }
    Ok(())
}

fn check_pe<'d, H: ImageNtHeaders, R: ReadRef<'d>>(
    data: R,
    whole: Extent,
    wanted: Wanted,
) -> Result<(), Refusal> {
    let dos = pe::ImageDosHeader::parse(data)?;
    let mut offset = dos.nt_headers_offset().into();
    let (headers, _) = H::parse(data, &mut offset)?;
    let file = headers.file_header();
    wanted.check_machine(file.machine.get(object::LittleEndian).into(), |m| m.3.into())?;
    if file.characteristics.get(object::LittleEndian) & pe::IMAGE_FILE_DLL == 0 {
        return invalid("a PE file, but not a shared library");
    }
    for section in headers.sections(data, offset)?.iter() {
        let (offset, size) = section.pe_file_range();
        whole.holds("section", offset.into(), size.into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: Wanted = Wanted { format: Format::Elf, arch: "x86_64", bits: 64, little_endian: true };
    const MAC: Wanted = Wanted { format: Format::MachO, arch: "aarch64", ..LINUX };
    const WINDOWS: Wanted = Wanted { format: Format::Pe, ..LINUX };

    fn put(bytes: &mut [u8], at: usize, value: u64, size: usize) {
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// A file with one segment of 64 bytes at the end, and no sections.
    fn elf() -> Vec<u8> {
        let mut file = vec![0; 64 + 56 + 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        for (at, value, size) in
            [(16, 3, 2), (18, 62, 2), (20, 1, 4), (32, 64, 8), (52, 64, 2), (54, 56, 2), (56, 1, 2)]
        {
            put(&mut file, at, value, size);
        }
        for (at, value, size) in [(0, 1, 4), (8, 120, 8), (32, 64, 8), (40, 64, 8)] {
            put(&mut file, 64 + at, value, size);
        }
        file
    }

    /// A file with one segment of 64 bytes at the end.
    fn dylib() -> Vec<u8> {
        let mut file = vec![0; 32 + 72 + 64];
        for (at, value, size) in
            [(0, 0xfeed_facf, 4), (4, 0x0100_000c, 4), (12, 6, 4), (16, 1, 4), (20, 72, 4)]
        {
            put(&mut file, at, value, size);
        }
        for (at, value, size) in [(0, 0x19, 4), (4, 72, 4), (40, 104, 8), (48, 64, 8)] {
            put(&mut file, 32 + at, value, size);
        }
        file
    }

    /// A file for two machines, of which the second one is `dylib`.
    fn fat() -> Vec<u8> {
        let mut file = vec![0; 256];
        let words = [0xcafe_babeu32, 2, 0x0100_0007, 3, 200, 10, 0, 0x0100_000c, 0, 256, 168, 0];
        for (i, word) in words.iter().enumerate() {
            file[i * 4..][..4].copy_from_slice(&word.to_be_bytes());
        }
        file.extend(dylib());
        file
    }

    /// A file with one section of 64 bytes at the end.
    fn dll() -> Vec<u8> {
        let mut file = vec![0; 64 + 4 + 20 + 240 + 40 + 64];
        file[..2].copy_from_slice(b"MZ");
        put(&mut file, 60, 64, 4);
        file[64..68].copy_from_slice(b"PE\0\0");
        for (at, value, size) in [(0, 0x8664, 2), (2, 1, 2), (16, 240, 2), (18, 0x2022, 2)] {
            put(&mut file, 68 + at, value, size);
        }
        put(&mut file, 88, 0x20b, 2);
        put(&mut file, 88 + 108, 16, 4);
        for (at, value, size) in [(8, 64, 4), (16, 64, 4), (20, 368, 4)] {
            put(&mut file, 328 + at, value, size);
        }
        file
    }

    #[test]
    fn whole_libraries_pass_and_cut_ones_do_not() {
        for (file, wanted) in [(elf(), LINUX), (dylib(), MAC), (fat(), MAC), (dll(), WINDOWS)] {
            assert_eq!(check_data(&*file, wanted), Ok(()), "{}", wanted.format.name());
            for len in 0..file.len() {
                let refused = check_data(&file[..len], wanted);
                assert!(
                    matches!(refused, Err(Refusal::Invalid(..))),
                    "{}, {len} bytes",
                    wanted.format.name()
                );
            }
            let error = check_data(&file[..file.len() - 1], wanted);
            assert!(format!("{error:?}").contains("truncated"), "{error:?}");
        }
    }

    #[test]
    fn libraries_for_others_are_named() {
        let check = |file: Vec<u8>, wanted: Wanted, want: &str| match check_data(&*file, wanted) {
            Err(Refusal::Incompatible(text)) => assert!(text.contains(want), "{text}"),
            other => panic!("{other:?}"),
        };
        check(
            elf(),
            WINDOWS,
            "it is an ELF file (Linux, Android, BSD), this machine loads a PE file (Windows)",
        );
        check(elf(), Wanted { arch: "aarch64", ..LINUX }, "for x86_64, this process runs on aarch64");
        check(elf(), Wanted { bits: 32, ..LINUX }, "for 64 bits");
        check(elf(), Wanted { little_endian: false, ..LINUX }, "for the other byte order");
        check(dylib(), Wanted { arch: "x86_64", ..MAC }, "for aarch64");
        check(fat(), Wanted { arch: "x86", ..MAC }, "for x86_64");
        check(dll(), Wanted { arch: "aarch64", ..WINDOWS }, "for x86_64");
    }

    #[test]
    fn other_files_are_refused() {
        let check = |file: &[u8], want: &str| match check_data(file, LINUX) {
            Err(Refusal::Invalid(text, _)) => assert!(text.contains(want), "{text}"),
            other => panic!("{other:?}"),
        };
        check(b"", "empty");
        check(b"#!/bin/sh\necho hello, this is a script\n", "not a shared library");
        let mut program = elf();
        put(&mut program, 16, 2, 2);
        check(&program, "an ELF file, but not a shared library");
    }
}

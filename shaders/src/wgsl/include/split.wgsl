// SPLIT invocations share an item. With ALONG they are neighbours, so that they read neighbouring
// parts of one item; otherwise neighbours read the same part of neighbouring items.
#if SPLIT > 1
var<workgroup> parts: array<P, {{WORKGROUP}}>;
#endif

// The part of its item that an invocation reads.
fn part_of(local: u32) -> u32 {
#if ALONG
    return local % {{SPLIT}}u;
#else
    return local / {{WORKGROUP / SPLIT}}u;
#endif
}

// The index within the workgroup of an invocation's item.
fn item_of(local: u32) -> u32 {
#if ALONG
    return local / {{SPLIT}}u;
#else
    return local % {{WORKGROUP / SPLIT}}u;
#endif
}

// Combines the values `v` of an item's invocations; all of them get the result. Must be called by the
// whole workgroup. The kernel defines `combine` and its type P.
fn across(v: P, local: u32, how: u32) -> P {
#if SPLIT > 1
    workgroupBarrier();
    parts[local] = v;
    for (var half = {{SPLIT / 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if part_of(local) < half {
#if ALONG
            parts[local] = combine(parts[local], parts[local + half], how);
#else
            parts[local] = combine(parts[local], parts[local + half * {{WORKGROUP / SPLIT}}u], how);
#endif
        }
    }
    workgroupBarrier();
#if ALONG
    return parts[local - part_of(local)];
#else
    return parts[item_of(local)];
#endif
#else
    return v;
#endif
}

    // An invocation's items are WORKGROUP apart. The digits of an item's index (by the extents from the
    // innermost dimension out) are computed by division for the first item only.
#if FOLDED
    let block = group.y * groups.x + group.x;
#else
    let block = group.x;
#endif
    var i = block * {{WORKGROUP}}u * p.items + local;
    var rest = i;
#for d in 0..RANK - 1
    let outer_{{d}} = divide(rest, p.extent_{{d}});
    var digit_{{d}} = rest - outer_{{d}} * p.extent_{{d}};
    rest = outer_{{d}};
#endfor
    var digit_{{RANK - 1}} = rest;
    for (var item = 0u; item < p.items; item++) {
        if i >= p.count {
            break;
        }

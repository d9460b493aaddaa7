#for v in 0..PIXEL_LOADS
        let term_a_{{v}} = next + pixel_term_{{v}};
#for j in 0..4
#if A_ROWS
        let at_a_{{v}}_{{j}} = row_four_{{v}} + (min(term_a_{{v}}, terms - 1u) * 4u + {{j}}u) * p.a_depth;
#else
        let at_a_{{v}}_{{j}} = row_{{v}}_{{j}} + min(term_a_{{v}}, terms - 1u);
#endif
        pixel_{{v}}_{{j}} = select(V(), a[at_a_{{v}}_{{j}}], term_a_{{v}} < terms);
#endfor
#endfor
#for v in 0..FILTER_LOADS
        let term_b_{{v}} = next + channel_term_{{v}};
#for j in 0..4
#if B_ROWS
        let at_b_{{v}}_{{j}} = column_four_{{v}} + (min(term_b_{{v}}, terms - 1u) * 4u + {{j}}u) * p.b_depth;
#else
        let at_b_{{v}}_{{j}} = column_{{v}}_{{j}} + min(term_b_{{v}}, terms - 1u);
#endif
        filter_{{v}}_{{j}} = select(V(), b[at_b_{{v}}_{{j}}], term_b_{{v}} < terms);
#endfor
#endfor

#for v in 0..PIXEL_LOADS
        let input_term_{{v}} = next + pixel_term_{{v}};
#if !POINTWISE
        let tap_{{v}} = tap_of(input_term_{{v}});
#endif
#for j in 0..4
#if POINTWISE
        pixel_{{v}}_{{j}} =
            select(V(), load(at_{{v}}_{{j}}, min(input_term_{{v}}, terms - 1u)) - zero_{{v}}_{{j}}, input_term_{{v}} < terms);
#else
        pixel_{{v}}_{{j}} = input_of(window_{{v}}_{{j}}, tap_{{v}}, zero_{{v}}_{{j}});
#endif
#endfor
#endfor
#for v in 0..FILTER_LOADS
#for j in 0..4
        filter_{{v}}_{{j}} = filter_of(next + channel_term_{{v}}, terms, channel_{{v}}_{{j}});
#endfor
#endfor

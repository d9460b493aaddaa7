        // The next step's loads, which overlap with the products of this one; zeros after the last terms.
        input_term += {{DEPTH}}u;
        term += {{DEPTH}}u;
#if !POINTWISE
        tap = tap_of(input_term);
#endif
#for v in 0..PIXEL_LOADS
#if POINTWISE
        pixel_{{v}} = select(V(), load(at_{{v}}, min(input_term, terms - 1u)) - zero_{{v}}, input_term < terms);
#else
        pixel_{{v}} = input_of(window_{{v}}, tap, zero_{{v}});
#endif
#endfor
#for v in 0..FILTER_LOADS
        filter_{{v}} = filter_of(term + {{v * LOADED_TERMS}}u, terms, channel);
#endfor

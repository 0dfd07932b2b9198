/* The worst of several errors, in which a NaN counts as the worst of all (fmax would drop it).
 * Thread-safety: a function without state. */
#ifndef TESTS_COMMON_WORST_H
#define TESTS_COMMON_WORST_H

static inline double worst_of(double worst, double next)
{
    return worst != worst || next <= worst ? worst : next;
}

#endif

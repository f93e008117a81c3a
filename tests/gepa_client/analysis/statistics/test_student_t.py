import pytest

from gepa_client.analysis.statistics import student_t


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 29, 30, 301, 1000])
def test_probabilities_and_quantiles_are_those_of_scipy(freedom):
    from scipy import stats  # takes a second, which every process of the tests would take

    for t in (-30.0, -1.3, 0.0, 0.4, 2.0, 12.0):
        assert student_t.cdf(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-12)
    for probability in (0.6, 0.95, 0.975, 0.9995):
        assert student_t.quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-8)

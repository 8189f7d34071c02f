"""A calibration with the H200's figures."""

from gpsched.adaptive.calibration.model import Bursts, Calibration, ControlCost, Figure, ReservedBursts


def figure(us: float, p90: float | None = None) -> Figure:
    return Figure(median_us=us, p10_us=us, p90_us=p90 or us, samples=15)


def calibration(
    *,
    gpu: str = "NVIDIA H200",
    driver: str = "580.159.04",
    scale: float = 1.0,
    time_s: float = 1.0,
    switch: float = 190.0,
    early: float = 75.0,
    late: float = 345.0,
    margin: float = 200.0,
    reserved: bool = True,
) -> Calibration:
    alone = 370.0
    bursts = ReservedBursts(early=figure(alone + early), late=figure(alone + late), late_margin_us=margin)
    return Calibration(
        time_s=time_s,
        gpu=gpu,
        driver=driver,
        scale=scale,
        controls={"disable": ControlCost(idle=figure(540.0), load=figure(640.0, 700.0))},
        bursts=Bursts(alone=figure(alone), timeslice=figure(alone + switch), reserved=bursts if reserved else None),
    )

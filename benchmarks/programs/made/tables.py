"""Made tables: columns with the names, kinds and correlations of the real ones."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd


def text(table: pd.DataFrame, **options: Any) -> bytes:
    """A table as a file of text."""
    return table.to_csv(**({"index": False} | options)).encode()


def baseball() -> bytes:
    """At-bats and hits of 18 players, early and in the season."""
    rng = np.random.default_rng(20)
    skill = rng.beta(80, 220, 18)
    season = rng.integers(200, 600, 18)
    table = pd.DataFrame(
        {
            "FirstName": [f"First{i}" for i in range(18)],
            "LastName": [f"Last{i}" for i in range(18)],
            "At-Bats": 45,
            "Hits": rng.binomial(45, skill),
            "SeasonAt-Bats": season,
            "SeasonHits": rng.binomial(season, skill),
        }
    )
    return text(table, sep="\t")


def admissions() -> bytes:
    """Applications and admissions of six departments by gender."""
    rng = np.random.default_rng(21)
    rows = []
    for i, dept in enumerate("ABCDEF"):
        for gender in ("male", "female"):
            n = int(rng.integers(25, 800))
            admitted = int(rng.binomial(n, 1 / (1 + np.exp(-0.6 + 0.6 * i))))
            rows.append((dept, gender, admitted, n - admitted, n))
    columns = ["dept", "applicant.gender", "admit", "reject", "applications"]
    return text(pd.DataFrame(rows, columns=columns), sep=";", index=True)


def returns() -> bytes:
    """A price of 2500 days whose volatility wanders."""
    rng = np.random.default_rng(22)
    volatility = np.exp(-4.7 + np.cumsum(0.05 * rng.normal(size=2500)) * 0.5)
    price = 1000 * np.exp(np.cumsum(volatility * rng.standard_t(10, size=2500)))
    days = pd.bdate_range("2010-01-04", periods=2500).strftime("%Y-%m-%d")
    return text(pd.DataFrame({"DATE": days, "VALUE": price}))


def hares() -> bytes:
    """A year, hares and lynxes by Lotka and Volterra's equations."""
    rng = np.random.default_rng(23)
    hare, lynx, rows = 34.0, 5.9, []
    for year in range(1900, 1921):
        rows.append((year, hare * rng.lognormal(0, 0.15), lynx * rng.lognormal(0, 0.15)))
        for _ in range(1000):
            more, less = (0.55 - 0.028 * lynx) * hare, (0.026 * hare - 0.8) * lynx
            hare, lynx = hare + more / 1000, lynx + less / 1000
    return "\n".join(" ".join(f"{x:.1f}" for x in row) for row in rows).encode()


def mortality() -> bytes:
    """Deaths by age, year and place, places within regions."""
    rng = np.random.default_rng(24)
    rows = []
    regions, places = rng.normal(0, 0.2, 4), rng.normal(0, 0.1, 20)
    for age in range(12):
        for place in range(20):
            for year in range(10):
                people = int(rng.integers(200, 4000))
                rate = np.exp(-6 + 0.35 * age + regions[place // 5] + places[place] - 0.02 * year)
                dead = rng.binomial(people, min(rate, 1))
                rows.append((5 * age, 2000 + year, age, place // 5, place, year, dead, people))
    columns = ["age_group", "year", "a", "s1", "s2", "t", "deaths", "population"]
    return text(pd.DataFrame(rows, columns=columns))


def titanic() -> bytes:
    """Passengers, a fifth of them of unknown age."""
    rng, n = np.random.default_rng(25), 891
    male = rng.random(n) < 0.65
    age = np.clip(rng.normal(30, 14, n), 0.5, 75)
    title = np.where(
        male, np.where(age < 14, "Master.", "Mr."), np.where(age < 25, "Miss.", "Mrs.")
    )
    title = np.where(rng.random(n) < 0.03, "Dr.", title)
    rank = rng.choice([1, 2, 3], n, p=[0.24, 0.21, 0.55])
    odds = 1.0 - 2.5 * male + 0.9 * (2 - rank) - 0.02 * (age - 30)
    table = pd.DataFrame(
        {
            "PassengerId": np.arange(1, n + 1),
            "Survived": (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int),
            "Pclass": rank,
            "Name": [f"Name{i}, {t} Given" for i, t in enumerate(title)],
            "Sex": np.where(male, "male", "female"),
            "Age": np.where(rng.random(n) < 0.2, np.nan, age.round(1)),
            "SibSp": rng.integers(0, 2, n),
            "Parch": rng.integers(0, 3, n),
            "Ticket": [f"T{i}" for i in range(n)],
            "Fare": rng.lognormal(3, 1, n).round(2),
            "Cabin": "",
            "Embarked": rng.choice(["S", "C", "Q"], n, p=[0.72, 0.19, 0.09]),
        }
    )
    return text(table)


def wells() -> bytes:
    """Households near wells with arsenic, and whether they switched."""
    rng, n = np.random.default_rng(26), 3020
    arsenic, distance = rng.lognormal(0.3, 0.6, n) + 0.3, rng.gamma(1.6, 30, n)
    odds = 0.4 * np.log(arsenic) - 0.009 * (distance - 48) + 0.2
    table = pd.DataFrame(
        {
            "switch": (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int),
            "arsenic": arsenic.round(2),
            "dist": distance.round(3),
            "assoc": rng.integers(0, 2, n),
            "educ": rng.choice(np.arange(18), n),
        },
        index=np.arange(1, n + 1),
    )
    return text(table, sep=" ", index=True)


def divorces() -> bytes:
    """Fifty states: ages at marriage, marriages, divorces and their standard errors."""
    rng, n = np.random.default_rng(27), 50
    age = rng.normal(26, 1.2, n)
    table = pd.DataFrame(
        {
            "Location": [f"State {i}" for i in range(n)],
            "Loc": [f"S{i:02d}" for i in range(n)],
            "Population": rng.lognormal(1.3, 1, n).round(2),
            "MedianAgeMarriage": age.round(1),
            "Marriage": (20 - 2 * (age - 26) + rng.normal(0, 2.5, n)).round(1),
            "Marriage SE": rng.uniform(0.3, 3, n).round(2),
            "Divorce": (9.7 - 0.9 * (age - 26) + rng.normal(0, 1.4, n)).round(1),
            "Divorce SE": rng.uniform(0.2, 2.5, n).round(2),
            "WaffleHouses": rng.poisson(30, n),
            "South": rng.integers(0, 2, n),
        }
    )
    return text(table, sep=";")


def lynxes() -> bytes:
    """Trapped lynxes of 114 years: a cycle of ten."""
    rng, years = np.random.default_rng(28), np.arange(1821, 1935)
    value = np.exp(6.7 + 1.2 * np.sin(2 * np.pi * years / 9.6) + 0.3 * rng.normal(size=114))
    return text(pd.DataFrame({"time": years, "value": value.astype(int)}), index=True)


def births() -> bytes:
    """Daily births of twenty years, with weeks and seasons."""
    rng = np.random.default_rng(29)
    days = pd.date_range("1969-01-01", "1988-12-31")
    of_year, of_week = days.day_of_year.to_numpy(), days.day_of_week.to_numpy() + 1
    season = 300 * np.sin(2 * np.pi * (of_year - 150) / 365.25)
    level = 9000 + season - 1200 * (of_week > 5) + 0.1 * np.arange(len(days))
    table = pd.DataFrame(
        {
            "year": days.year, "month": days.month, "day": days.day,
            "births": (level + 150 * rng.normal(size=len(days))).astype(int),
            "day_of_year": of_year, "day_of_week": of_week,
            "id": np.arange(1, len(days) + 1), "day_of_year2": of_year,
        }
    )  # fmt: skip
    return text(table)


def fish() -> bytes:
    """Groups of visitors and the fish they caught, many none."""
    rng, n = np.random.default_rng(30), 250
    people = rng.integers(1, 5, n)
    child = np.minimum(rng.integers(0, 4, n), people - 1)
    camper, bait = rng.integers(0, 2, n), (rng.random(n) < 0.86).astype(int)
    rate = np.exp(-1.6 + 0.9 * people - 1.0 * child + 0.8 * camper)
    count = np.where(rng.random(n) < 0.4, 0, rng.poisson(rate))
    table = pd.DataFrame(
        {"nofish": 0, "livebait": bait, "camper": camper, "persons": people, "child": child,
         "xb": 0.1, "zg": 0.2, "count": count}
    )  # fmt: skip
    file = io.BytesIO()
    table.astype("float32").to_stata(file, write_index=False)
    return file.getvalue()


def emails() -> bytes:
    """Payments of 5000 customers, half of whom had an email."""
    rng, n = np.random.default_rng(31), 5000
    limit, risk, email = rng.normal(1200, 380, n), rng.beta(9, 4, n), rng.integers(0, 2, n)
    paid = 490 + 0.15 * limit + 4 * email + 50 * risk + 75 * rng.normal(size=n)
    table = {"payments": paid.round(), "email": email, "opened": 0, "agreement": 0,
             "credit_limit": limit, "risk_score": risk}  # fmt: skip
    return text(pd.DataFrame(table))


def lungs() -> bytes:
    """Capacities of 176 patients over weeks, by whether they smoke."""
    rng, rows = np.random.default_rng(32), []
    for patient in range(176):
        level, slope = rng.normal(2700, 700), rng.normal(-5, 4)
        habit = rng.choice(["Ex-smoker", "Never smoked", "Currently smokes"], p=[0.65, 0.3, 0.05])
        for week in np.sort(rng.choice(np.arange(-4, 60), 9, replace=False)):
            value = level + slope * week + 120 * rng.normal()
            rows.append((f"ID{patient:05d}", week, int(value), value / 40, 65, "Male", habit))
    columns = ["Patient", "Weeks", "FVC", "Percent", "Age", "Sex", "SmokingStatus"]
    return text(pd.DataFrame(rows, columns=columns))


CREDIT = [4, 0, 5, 10, 0, 5, 5, 0, 4, 3, 0, 4, 0, 3, 3, 0, 4, 0, 2, 2]  # categories; 0: a number


def credit() -> bytes:
    """A thousand applicants for credit: thirteen categories, seven numbers, good or bad."""
    rng, n = np.random.default_rng(33), 1000
    table, odds = {}, np.full(n, 0.8)
    for i, levels in enumerate(CREDIT, 1):
        if levels:
            found = rng.integers(levels, size=n)
            table[f"Attribute{i}"] = np.array([f"A{i}{k}" for k in range(levels)])[found]
            odds = odds + rng.normal(0, 0.3, levels)[found]
        else:
            table[f"Attribute{i}"] = rng.poisson(20, n)
    table["class"] = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), 1, 2)
    return text(pd.DataFrame(table))


def credit_index() -> bytes:
    """What the repository says of that table."""
    names = [f"Attribute{i}" for i in range(1, len(CREDIT) + 1)]
    variables = [{"name": name, "role": "Feature"} for name in names]
    data = {
        "uci_id": 144, "name": "German credit", "data_url": "https://made/german_credit.csv",
        "variables": [*variables, {"name": "class", "role": "Target"}],
        "additional_info": None, "intro_paper": None,
    }  # fmt: skip
    return json.dumps({"status": 200, "data": data}).encode()


MAKERS: dict[str, Callable[[], bytes]] = {
    "EfronMorrisBB.txt": baseball,
    "UCBadmit.csv": admissions,
    "SP500.csv": returns,
    "LynxHare.txt": hares,
    "simulated_mortality.csv": mortality,
    "train.csv": titanic,
    "wells.dat": wells,
    "WaffleDivorce.csv": divorces,
    "lynx.csv": lynxes,
    "births_usa_1969.csv": births,
    "fish.dta": fish,
    "collections_email.csv": emails,
    "osic_pulmonary_fibrosis.csv": lungs,
    "german_credit.csv": credit,
    "/api/dataset?id=144": credit_index,
}
